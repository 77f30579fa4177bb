// Package near owns the measure by which a misspelled name is matched to a known one. How close is close enough is up to those who
// ask.
package near

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
