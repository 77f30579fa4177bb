package team

import "encoding/json"

// whom is the member that an argument names. asked is false if the signal asks nobody.
func (a *Ask) whom(arguments json.RawMessage) (to string, asked bool) {
	if a == nil {
		return "", false
	}
	var args map[string]json.RawMessage
	var name string
	if json.Unmarshal(arguments, &args) != nil || json.Unmarshal(args[a.Argument], &name) != nil {
		return "", true
	}
	return a.To[name], true
}
