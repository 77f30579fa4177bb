package record

import (
	"github.com/epigraph-run/epigraph/workgraph"
)

// RunError is the stored form of the failure of a run.
type RunError struct {
	Type    workgraph.ErrorType `json:"type,omitempty"`
	Reason  string              `json:"reason,omitempty"`
	Message string              `json:"message,omitempty"`
	Node    string              `json:"node,omitempty"`
	Visit   int                 `json:"visit,omitempty"`
}

// NewRunError is the error in the row of a failed run; nil for any other run.
func NewRunError(end *workgraph.RunEnd) *RunError {
	if end.Status != workgraph.StatusFailed {
		return nil
	}
	e := &RunError{Reason: end.Reason, Message: end.Message}
	if end.Error != nil {
		e.Type, e.Reason = end.Error.Type, end.Error.Reason
		if end.Error.Message != "" {
			e.Message = end.Error.Message
		}
	}
	if end.Failed != nil {
		e.Node, e.Visit = end.Failed.Node, end.Failed.Visit
	}
	return e
}

// MaxMessage bounds the text of an error in bytes, since lists of runs contain it.
const MaxMessage = 8 << 10
