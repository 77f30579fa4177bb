package jsonview_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/gateway/internal/jsonview"
)

func BenchmarkEncode(b *testing.B) {
	m := &executorv1.ListVisitsResponse{}
	for i := range 100 {
		m.Visits = append(m.Visits, &executorv1.Visit{
			RunId: "run_1", NodeId: fmt.Sprint(i), State: executorv1.VisitState_VISIT_STATE_COMPLETED,
			Values: []*graphv1.Payload{payload(`{"text":"` + strings.Repeat("lorem ipsum ", 40) + `","n":[1,2,3]}`)},
		})
	}
	out, err := jsonview.Encode(m)
	require.NoError(b, err)
	b.SetBytes(int64(len(out)))
	for b.Loop() {
		_, err = jsonview.Encode(m)
	}
	require.NoError(b, err)
}

func BenchmarkDecode(b *testing.B) {
	row := `{"id":12345,"name":"lorem ipsum","tags":["a","b"],"score":0.5}`
	body := []byte(`{"graph":{},"args":[[` + strings.Repeat(row+",", 10_000) + row + `]]}`)
	md := (&executorv1.StartRunRequest{}).ProtoReflect().Descriptor()
	b.SetBytes(int64(len(body)))
	var err error
	for b.Loop() {
		_, err = jsonview.Decode(body, md, free)
	}
	require.NoError(b, err)
}
