package workflow

// Format writes the text of a definition, YAML or JSON, in its plain form: YAML with short parts on one
// line, keys in the order in which they stand. Comments are not kept. It looks at the values only: what
// they mean is for Read.
func Format(src []byte) ([]byte, Faults) {
	t := &teller{}
	v := readSource(t, src)
	if v == nil {
		return nil, t.faults.sorted()
	}
	return write(v), nil
}

// UsableID reports whether a step may have an id: one of letters, digits and _, 64 at most, that is no
// word of expressions, of scripts or of the language.
func UsableID(id string) bool {
	return idPattern.MatchString(id) && !reserved[id] && !ofRule.MatchString(id)
}
