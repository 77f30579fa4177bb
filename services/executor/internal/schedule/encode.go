package schedule

import (
	"encoding/json"
	"fmt"
)

// Encode renders what drivers keep of s as it is. Drivers only.
func Encode(s *Schedule) (spec, recent []byte, err error) {
	if spec, err = json.Marshal(s.Spec); err != nil {
		return nil, nil, fmt.Errorf("encode schedule %s: %w", s.ID, err)
	}
	if len(s.Recent) == 0 {
		return spec, nil, nil
	}
	if recent, err = json.Marshal(s.Recent); err != nil {
		return nil, nil, fmt.Errorf("encode starts of schedule %s: %w", s.ID, err)
	}
	return spec, recent, nil
}

// Decode is the inverse of Encode. Drivers only.
func Decode(s *Schedule, spec, recent []byte) error {
	if err := json.Unmarshal(spec, &s.Spec); err != nil {
		return fmt.Errorf("decode schedule %s: %w", s.ID, err)
	}
	if len(recent) > 0 {
		if err := json.Unmarshal(recent, &s.Recent); err != nil {
			return fmt.Errorf("decode starts of schedule %s: %w", s.ID, err)
		}
	}
	return nil
}
