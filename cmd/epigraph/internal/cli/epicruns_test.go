package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// TestNewest makes pages of runs that are named by the second in which they were created.
func TestNewest(t *testing.T) {
	t.Parallel()
	at := func(second int) time.Time { return time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC) }
	for name, c := range map[string]struct {
		pages []string // of one task each; a + says that there are more
		size  int
		want  string
		next  int // second before which the next page begins; 0 for none
	}{
		"NoTasks":            {nil, 2, "", 0},
		"NoRuns":             {[]string{"", ""}, 2, "", 0},
		"Merged":             {[]string{"9 5 1", "8 7"}, 9, "9 8 7 5 1", 0},
		"JustAsMany":         {[]string{"9 5", "8"}, 3, "9 8 5", 0},
		"More":               {[]string{"9 5", "8 7"}, 3, "9 8 7", 7},
		"MoreOfOneTask":      {[]string{"9 5+", "8"}, 3, "9 8 5", 5},
		"OneInstantOnePage":  {[]string{"9 5", "5 4"}, 2, "9 5 5", 5},
		"OneInstantAtTheEnd": {[]string{"9 5", "5"}, 2, "9 5 5", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var pages []*executorv1.ListRunsResponse
			for _, p := range c.pages {
				text, more := strings.CutSuffix(p, "+")
				page := &executorv1.ListRunsResponse{}
				if more {
					page.NextPageToken = "more"
				}
				for _, id := range strings.Fields(text) {
					page.Runs = append(page.Runs, &executorv1.Run{Id: id, CreateTime: timestamppb.New(at(int(id[0] - '0')))})
				}
				pages = append(pages, page)
			}
			got := newest(pages, c.size)
			var ids []string
			for _, r := range got.GetRuns() {
				ids = append(ids, r.GetId())
			}
			require.Equal(t, c.want, strings.Join(ids, " "))
			next := ""
			if c.next > 0 {
				next = at(c.next).Format(time.RFC3339Nano)
			}
			require.Equal(t, next, got.GetNextPageToken())
		})
	}
}
