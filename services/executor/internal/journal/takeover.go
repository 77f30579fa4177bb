package journal

// SortOut decides which found runs are claimed and which quarantined, and counts their take-overs.
// Drivers only.
func SortOut(found []RunRef, o TakeOverOptions) TakeOverResult {
	most := o.MaxTakeovers
	if most <= 0 {
		most = DefaultMaxTakeovers
	}
	res := TakeOverResult{More: len(found) >= o.Limit}
	for _, f := range found {
		if f.State == StateRunning && !f.From.IsZero() {
			f.Takeovers++
			if f.Takeovers >= most {
				res.Quarantined = append(res.Quarantined, f)
				continue
			}
		}
		res.Claimed = append(res.Claimed, f)
	}
	return res
}
