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
	tails(all)
	sort.SliceStable(all, func(i, j int) bool { return all[i].Weight > all[j].Weight })
	return all
}

// tails takes arrows that only stand before what a step needs ("2. fill → after 1") for a part of the list, not for a
// drawing: then the list knows as many links.
func tails(all []*Reading) {
	for _, d := range all {
		if d.Form != "diagram" || len(d.Evidence) == 0 || d.Evidence[0] != "arrows" {
			continue
		}
		for _, r := range all {
			if r.Form == "outline" && r.Stated && len(r.Links) >= len(d.Links) && len(r.Items) > 1 && r.Start < d.End && d.Start < r.End {
				d.Weight = min(d.Weight, r.Weight-closeReading)
			}
		}
	}
}

// closeReading is the difference in weight from which one reading is clearly the better one.
const closeReading = 6
