package trigger

import (
	"encoding/json"
	"fmt"
)

// EncodeSpec renders what drivers keep of a trigger as it is. Drivers only.
func EncodeSpec(t *Trigger) ([]byte, error) {
	b, err := json.Marshal(t.Spec)
	if err != nil {
		return nil, fmt.Errorf("encode trigger %s: %w", t.ID, err)
	}
	return b, nil
}

// DecodeSpec is the inverse of EncodeSpec. Drivers only.
func DecodeSpec(t *Trigger, b []byte) error {
	if err := json.Unmarshal(b, &t.Spec); err != nil {
		return fmt.Errorf("decode trigger %s: %w", t.ID, err)
	}
	return nil
}

// EncodeDetails renders what drivers keep of a delivery as it is. Drivers only.
func EncodeDetails(d *Delivery) ([]byte, error) {
	b, err := json.Marshal(d.Details)
	if err != nil {
		return nil, fmt.Errorf("encode delivery %s: %w", d.ID, err)
	}
	return b, nil
}

// DecodeDetails is the inverse of EncodeDetails. Drivers only.
func DecodeDetails(d *Delivery, b []byte) error {
	if err := json.Unmarshal(b, &d.Details); err != nil {
		return fmt.Errorf("decode delivery %s: %w", d.ID, err)
	}
	return nil
}
