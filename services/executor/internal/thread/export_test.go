package thread

// Kept is how many windows the cache keeps.
func (c *Cache) Kept() int { return c.windows.Len() }
