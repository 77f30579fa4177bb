package turns

// Known is of how many keys something is remembered.
func (t *Turns) Known() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byKey)
}
