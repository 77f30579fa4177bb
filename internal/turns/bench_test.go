package turns_test

import (
	"testing"

	"github.com/epigraph-run/epigraph/internal/turns"
)

// BenchmarkEnter is what a turn costs that is free.
func BenchmarkEnter(b *testing.B) {
	all := turns.New(2)
	b.ReportAllocs()
	for b.Loop() {
		leave, err := all.Enter(b.Context(), "default")
		if err != nil {
			b.Fatal(err)
		}
		leave()
	}
}
