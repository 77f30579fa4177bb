package tell

import (
	"fmt"
	"os"
	"strconv"
	"testing"
)

func TestZZShow(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("SHOW"))
	if n == 0 {
		t.Skip()
	}
	all, err := Make(7, 6000)
	if err != nil {
		t.Fatal(err)
	}
	from, _ := strconv.Atoi(os.Getenv("FROM"))
	for i := range all {
		x := &all[i]
		if s := os.Getenv("STYLE"); s != "" && s != x.Style {
			continue
		}
		if s := os.Getenv("LANGU"); s != "" && s != x.Lang {
			continue
		}
		if from > 0 {
			from--
			continue
		}
		if n--; n < 0 {
			break
		}
		fmt.Printf("@@ %s hidden=%v report=%v note=%s\nN %q\nE %v open=%v\n<<<\n%s\n>>>\n", x.ID, x.Hidden, x.Report, x.Note, x.Nodes, x.Edges, x.EdgesOpen, x.Body)
	}
}
