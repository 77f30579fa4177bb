package conf

import "os"

// Inherited are those of the named variables of this process's environment that are set, as a command takes
// them. What a process starts gets these and no others, since the rest may be secret.
func Inherited(names ...string) []string {
	out := []string{}
	for _, name := range names {
		if v, ok := os.LookupEnv(name); ok {
			out = append(out, name+"="+v)
		}
	}
	return out
}
