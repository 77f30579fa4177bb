package inflight

// Rounds is how often it was looked for whose turn it is in the line.
func (b *Budget) Rounds() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.round
}
