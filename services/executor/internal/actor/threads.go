package actor

import "encoding/json"

// ThreadArguments are the arguments by which a call names a thread to go on with.
func ThreadArguments() []string {
	return []string{"thread", "thread_id", "conversation", "shared_thread"}
}

// NamesThread reports whether a call is given one of the ThreadArguments, by name or in the mapping that its
// first positional argument may be.
func NamesThread(named map[string]json.RawMessage, args []json.RawMessage) bool {
	var mapping map[string]json.RawMessage
	if len(args) > 0 {
		_ = json.Unmarshal(args[0], &mapping) // what is no mapping names nothing
	}
	for _, name := range ThreadArguments() {
		for _, of := range []map[string]json.RawMessage{named, mapping} {
			if v, ok := of[name]; ok && string(v) != "null" {
				return true
			}
		}
	}
	return false
}
