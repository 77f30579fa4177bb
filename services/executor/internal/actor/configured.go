package actor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
)

var configuredName = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,62}$`)

// CheckName reports a name that an actor of the configuration cannot have.
func CheckName(name string) error {
	if !configuredName.MatchString(name) {
		return errors.New("the name must have 1 to 63 small letters, digits, _, . and -, and begin with a letter or digit")
	}
	return nil
}

// Configured is a text of the configuration, of at most so many bytes: one that a setting holds, or the file
// that stands in its place. Exactly one of both is given. Errors do not show the text.
func Configured(setting, text, file string, most int) ([]byte, error) {
	switch {
	case (text == "") == (file == ""):
		return nil, fmt.Errorf("give exactly one of %s and file", setting)
	case file == "" && len(text) > most:
		return nil, fmt.Errorf("%s has %d bytes, the limit is %d", setting, len(text), most)
	case file == "":
		return []byte(text), nil
	}
	f, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if f.Size() > int64(most) {
		return nil, fmt.Errorf("file %s has %d bytes, the limit is %d", file, f.Size(), most)
	}
	return os.ReadFile(file) //nolint:gosec // the operator names it
}

// SchemaWithout is the JSON Schema of an object without some of its properties: that of the arguments which
// are left to give. It is nil if the schema cannot be read.
func SchemaWithout(schema json.RawMessage, hides func(property string) bool) json.RawMessage {
	var parts, all map[string]json.RawMessage
	if len(schema) == 0 || json.Unmarshal(schema, &parts) != nil {
		return nil
	}
	if json.Unmarshal(parts["properties"], &all) != nil || all == nil {
		return schema
	}
	hidden := map[string]bool{}
	for k := range all {
		if hides(k) {
			hidden[k] = true
		}
	}
	if len(hidden) == 0 {
		return schema
	}
	for k := range hidden {
		delete(all, k)
	}
	var required []string
	if json.Unmarshal(parts["required"], &required) == nil {
		required = slices.DeleteFunc(required, func(k string) bool { return hidden[k] })
		if delete(parts, "required"); len(required) > 0 {
			parts["required"], _ = Encode(required) // texts always marshal
		}
	}
	// Alternatives may name an argument that is not shown.
	delete(parts, "anyOf")
	delete(parts, "oneOf")
	raw, err := Encode(all)
	if err != nil {
		return nil
	}
	parts["properties"] = raw
	if raw, err = Encode(parts); err != nil {
		return nil
	}
	return raw
}
