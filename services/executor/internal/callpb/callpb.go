// Package callpb translates the usage and the failures of calls into their wire form, for clients and for
// remote workers alike. It knows the model and the generated types, and neither runs nor callers.
package callpb

import (
	"math"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Count is n as the wire has it; a value out of range becomes the nearest in range.
func Count(n int) int32 { return int32(max(min(n, math.MaxInt32), math.MinInt32)) }

// ErrorType is UNSPECIFIED for a type that the wire does not know.
func ErrorType(t workgraph.ErrorType) executorv1.ErrorType {
	switch t {
	case workgraph.Retryable:
		return executorv1.ErrorType_ERROR_TYPE_RETRYABLE
	case workgraph.Permanent:
		return executorv1.ErrorType_ERROR_TYPE_PERMANENT
	case workgraph.Unknown:
		return executorv1.ErrorType_ERROR_TYPE_UNKNOWN
	case workgraph.NotPerformed:
		return executorv1.ErrorType_ERROR_TYPE_NOT_PERFORMED
	}
	return executorv1.ErrorType_ERROR_TYPE_UNSPECIFIED
}

// Budget is the wire form of what a run may use; nil for nil.
func Budget(b *workgraph.Budget) *executorv1.RunBudget {
	if b.IsZero() {
		return nil
	}
	return &executorv1.RunBudget{NanoUsd: b.NanoUSD, Tokens: b.Tokens}
}

// FromBudget is what a run may use; nil for one without caps.
func FromBudget(m *executorv1.RunBudget) *workgraph.Budget {
	b := &workgraph.Budget{}
	if m != nil {
		b.NanoUSD, b.Tokens = m.NanoUsd, m.Tokens
	}
	if b.IsZero() {
		return nil
	}
	return b
}
