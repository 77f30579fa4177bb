package actor

// Keeps reports whether the compiled form of text is remembered.
func (x *Expressions) Keeps(text string) bool { return x.find(text) != nil }

// Kept is how many bytes of text are remembered.
func (x *Expressions) Kept() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return int(x.byText.Weight())
}
