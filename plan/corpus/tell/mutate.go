package tell

// damage changes what does not change the truth, in a quarter of the texts.
func (t *teller) damage() {}
