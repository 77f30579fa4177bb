package journal

import (
	"bytes"
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/page"
)

// Interrupt is a question as its row. RunID and RootID of one that is opened are filled in by the journal.
type Interrupt struct {
	ID, Namespace, RunID, RootID    string
	NodeID                          string
	Visit, Item                     int32
	State                           InterruptState
	Prompt, Schema, Approve, Answer []byte
	Default                         []byte
	// OfAgent says that an agent's own loop asks, so that a message to the agent answers it.
	OfAgent bool
	// Binds names what an approval covers besides Approve: see workgraph.ApproveHash.
	Binds        string
	Decision, By string
	// Principal is whose API key answered.
	Principal                         string
	CreateTime, ExpireTime, CloseTime time.Time
}

// InterruptState is where an interrupt stands. The numbers are those of the API and never change.
type InterruptState int32

// The states of an interrupt.
const (
	InterruptOpen     InterruptState = 1
	InterruptAnswered InterruptState = 2
	InterruptExpired  InterruptState = 3
	InterruptCanceled InterruptState = 4
)

// Closing is the end of an interrupt by the run's own doing. An interrupt that is closed already stays as
// it is.
type Closing struct {
	ID           string
	State        InterruptState
	Answer       []byte
	Decision, By string
	Time         time.Time
}

// InterruptFilter narrows a list of interrupts; all set fields must hold.
type InterruptFilter struct {
	// RunID are interrupts of this run and of all its descendants.
	RunID  string
	States []InterruptState
}

// Interrupts reads interrupts. The commits of their runs open and close them, and Commands.Enqueue answers
// them. The open ones of a run that ends become InterruptCanceled.
type Interrupts interface {
	// GetInterrupt returns one interrupt. ReasonInterruptNotFound.
	GetInterrupt(ctx context.Context, namespace, id string) (Interrupt, error)
	// ListInterrupts returns up to limit interrupts after a cursor, newest first by (CreateTime, ID).
	ListInterrupts(ctx context.Context, namespace string, f InterruptFilter, after page.Cursor, limit int) ([]Interrupt, error)
	// OldestQuestion returns the id of the oldest open interrupt of a run and its descendants that is no
	// approval, by (CreateTime, ID); empty if there is none. With ofAgent it is one that an agent's own loop
	// asks.
	OldestQuestion(ctx context.Context, namespace, runID string, ofAgent bool) (string, error)
}

// Closes reports whether i was answered by a before, so that closing it changes nothing. An error says that
// it was closed in another way. Drivers only.
func (a *Answer) Closes(i *Interrupt) (repeated bool, err error) {
	switch {
	case i.State == InterruptOpen:
		return false, nil
	case i.State == InterruptAnswered && bytes.Equal(i.Answer, a.Answer) && i.Decision == a.Decision && i.By == a.By:
		return true, nil
	}
	return false, InterruptClosed(i.ID)
}

// Size implements page.Row.
func (i Interrupt) Size() int {
	return rowSize + len(i.Prompt) + len(i.Schema) + len(i.Approve) + len(i.Answer) + len(i.Default)
}
