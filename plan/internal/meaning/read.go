package meaning

import (
	"sort"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// readers are the ways in which a text is read. Each returns the readings that it finds, or none.
var readers = [...]func(*form.Source) []*Reading{
	readRecords, readCode, readDiagram, readOutline, readProse,
}

// Read returns the readings of a text, the likeliest first. Its time is linear in the length of the text. Of a text with
// alternatives, such as "Option A" and "Option B", the one that it chooses is read, and a correction
// below a plan changes it.
func Read(src *form.Source) []*Reading {
	if all := readChoice(src, readAll); all != nil {
		return all
	}
	if all := readCorrected(src, readAll); all != nil {
		return all
	}
	return readAll(src)
}

func readAll(src *form.Source) []*Reading {
	var all []*Reading
	for _, read := range readers {
		if src.Ended() {
			return nil
		}
		all = append(all, read(src)...)
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].Weight > all[j].Weight })
	return all
}
