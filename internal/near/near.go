// Package near owns the measure by which a misspelled name is matched to a known one. How close is close enough is up to those who
// ask.
package near

// MaxLen is how long a word may be to be matched with others by Within.
const MaxLen = 256

// Within reports whether at most so many edits lie between two words, and how many. Words whose lengths differ by more, or that are longer than
// MaxLen, are told apart without a look at their bytes.
func Within(a, b string, most int) (distance int, ok bool) {
	if max(len(a), len(b)) > MaxLen || max(len(a)-len(b), len(b)-len(a)) > most {
		return 0, false
	}
	distance = Distance(a, b)
	return distance, distance <= most
}

// Distance is the Levenshtein distance of two words in bytes: the insertions, deletions and substitutions that lie between them.
// Its time grows with the product of their lengths.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diag
			if a[i] != b[j] {
				cost++
			}
			diag = row[j+1]
			row[j+1] = min(cost, row[j]+1, diag+1)
		}
	}
	return row[len(b)]
}
