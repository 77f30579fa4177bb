package llm_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// BenchmarkStream compares an answer that comes whole with one that comes in pieces of 12 letters, for
// answers of some lengths. The scripted server in the same process has a part in the difference.
func BenchmarkStream(b *testing.B) {
	for _, pieces := range []int{10, 50, 200} {
		for _, how := range []string{"false", "true"} {
			b.Run(fmt.Sprintf("pieces=%d/stream=%s", pieces, how), func(b *testing.B) {
				s, _ := model(b, fakellm.Script{Default: fakellm.Reply{Text: "<InstantResponse>" + strings.Repeat("twelve words ", pieces*12/13) + "</InstantResponse>"}})
				ctx := actor.WithReporter(b.Context(), &dropped{})
				named := map[string]json.RawMessage{"request": json.RawMessage(`"x"`), "stream": json.RawMessage(how), "decision": json.RawMessage("true")}
				for b.Loop() {
					_, err := s.Actor.Call(ctx, workgraph.NewCall(workgraph.Start{Named: named}, workgraph.CallOptions{}))
					require.NoError(b, err)
				}
			})
		}
	}
}

// dropped takes reports and keeps none.
type dropped struct{ bytes int }

func (d *dropped) Text(s string)          { d.bytes += len(s) }
func (d *dropped) Raw(s string)           { d.bytes += len(s) }
func (*dropped) Progress(json.RawMessage) {}
func (*dropped) Watched() bool            { return true }
