// Package near owns the measure by which a misspelled name is matched to a known one. The caller decides how
// close is close enough. It is written here because libraries that are kept well do not count swaps as one
// edit, and it is one function.
package near

// MaxLen is how long a word may be to be matched with others by Within.
const MaxLen = 256

// Within reports whether two words differ by at most that many edits, and by how many. Words whose lengths
// differ by more, or that are longer than MaxLen, are rejected without a look at their bytes.
func Within(a, b string, most int) (distance int, ok bool) {
	if max(len(a), len(b)) > MaxLen || max(len(a)-len(b), len(b)-len(a)) > most {
		return 0, false
	}
	distance = Distance(a, b)
	return distance, distance <= most
}

// Distance is the number of edits in bytes between two words: insertions, deletions, substitutions, and swaps
// of two neighbors that are not edited again (the optimal string alignment distance). Its time is the product
// of their lengths.
func Distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := last[j]
			if a[i] != b[j] {
				cost++
			}
			row[j+1] = min(cost, row[j]+1, last[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
