package inflight

// Rounds counts the searches for the next claim in the queue.
func (b *Budget) Rounds() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.round
}
