package journal

import "encoding/json"

// EncodeLabels renders labels for a details row; none give nil. Drivers only.
func EncodeLabels(labels map[string]string) []byte {
	if len(labels) == 0 {
		return nil
	}
	// A map of strings always marshals, and with sorted keys.
	b, _ := json.Marshal(labels)
	return b
}

// DecodeLabels is the inverse of EncodeLabels.
func DecodeLabels(b []byte) (map[string]string, error) {
	if len(b) == 0 {
		return nil, nil
	}
	var m map[string]string
	err := json.Unmarshal(b, &m)
	return m, err
}
