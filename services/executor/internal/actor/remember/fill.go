package remember

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/sleep"
)

// Unembedded are entries of the memory that have no vector of a model.
type Unembedded interface {
	// Lease hands out some of them, which nobody else gets for two minutes.
	Lease(ctx context.Context, model string, limit int) ([]Bare, error)
	// Embed sets a vector, unless the entry was written since.
	Embed(ctx context.Context, b Bare, v Vector) error
	// Refused tells that a model made no vector of an entry, unless the entry was written since.
	Refused(ctx context.Context, b Bare, model, why string) error
}

// Payer pays for the vectors of entries that were written without one. Implementations are safe for
// concurrent use.
type Payer interface {
	// Reserve takes what a call may use from the budget of a namespace, under an id of the call. refusal is
	// empty if the call may be made.
	Reserve(ctx context.Context, namespace, id string, most llm.Spent) (refusal string, err error)
	// Settle books what the call used. Without any it gives back what was reserved.
	Settle(ctx context.Context, namespace, id string, spent []llm.Spent) error
}

// Bare is an entry without a vector.
type Bare struct {
	Entry
	Namespace, ID, Etag string
}

const (
	// filledAtOnce is how many entries are handed out at once.
	filledAtOnce = 32
	// turnTime bounds the work on them: then somebody else may have them.
	turnTime = 100 * time.Second
	// probe is a text that every model takes.
	probe = "memory"
)

// Filler makes vectors of what has none, such as procedures and what people write.
type Filler struct {
	Entries  Unembedded
	Embedder Embedder
	// Model is the one of the embedder. Booked is what a call of it is booked as.
	Model  string
	Booked llm.Spent
	// Payer nil books nothing.
	Payer Payer
	// NewID makes the id of a call.
	NewID func() string
	// Every is the pause when there is nothing to do, and when the registry or the model does not answer.
	Every time.Duration
	Log   *slog.Logger

	// resting are namespaces without room in their budgets, and until when they are not asked for again.
	resting map[string]time.Time
}

// Run works until ctx ends. It is called once.
func (f *Filler) Run(ctx context.Context) {
	f.resting = map[string]time.Time{}
	for {
		n, err := f.turn(ctx)
		if err != nil && ctx.Err() == nil {
			f.Log.WarnContext(ctx, "entries of the memory have no vectors yet", slog.Any("err", err))
		}
		if (n == 0 || err != nil) && !sleep.For(ctx, f.Every) || ctx.Err() != nil {
			return
		}
	}
}

// errStop ends a turn: what made it fail would fail the calls of other namespaces as well.
var errStop = errors.New("the model that makes vectors does not answer")

// errNoRoom is that of a namespace which has no room for a call in its budget: it alone waits.
var errNoRoom = errors.New("the namespace has no room in its budget")

// turn makes the vectors of some entries and returns how many it was handed, without those of
// namespaces that rest.
func (f *Filler) turn(ctx context.Context) (tried int, err error) {
	ctx, stop := context.WithTimeout(ctx, turnTime)
	defer stop()
	maps.DeleteFunc(f.resting, func(_ string, until time.Time) bool { return !time.Now().Before(until) })
	list, err := f.Entries.Lease(ctx, f.Model, filledAtOnce)
	of := map[string][]Bare{}
	var order []string
	for _, b := range list {
		if of[b.Namespace] == nil {
			order = append(order, b.Namespace)
		}
		of[b.Namespace] = append(of[b.Namespace], b)
	}
	for _, namespace := range order {
		if _, rests := f.resting[namespace]; rests {
			continue // its entries are handed out again later
		}
		failed := f.embed(llm.WithCaller(ctx, namespace), namespace, of[namespace])
		if errors.Is(failed, errNoRoom) {
			f.resting[namespace] = time.Now().Add(f.Every)
			f.Log.WarnContext(ctx, "entries of a namespace have no vectors yet", slog.Any("err", failed), slog.String("namespace", namespace))
			continue
		}
		tried += len(of[namespace])
		if err = errors.Join(err, failed); errors.Is(err, errStop) || ctx.Err() != nil {
			break
		}
	}
	if len(order) == filledAtOnce { // others may wait behind so many namespaces that rest
		tried = len(list)
	}
	return tried, err
}

// embed makes the vectors of entries of one namespace. If the model does not take them together, but
// takes another text, the fault is that of some of them: each is tried alone, so that none keeps the
// others from their vectors.
func (f *Filler) embed(ctx context.Context, namespace string, some []Bare) error {
	texts := make([]string, len(some))
	for i := range some {
		texts[i] = some[i].Meaning()
	}
	got, err := f.call(ctx, namespace, texts)
	if err == nil {
		return f.set(ctx, some, got)
	}
	failed, ok := errors.AsType[*llm.Error](err)
	if !ok {
		return err
	}
	if !refused(failed) {
		return errors.Join(errStop, err)
	}
	if _, unwell := f.call(ctx, namespace, []string{probe}); unwell != nil {
		if _, ok := errors.AsType[*llm.Error](unwell); ok {
			err = errors.Join(errStop, err)
		}
		return err
	}
	if len(some) == 1 {
		return current(f.Entries.Refused(ctx, some[0], f.Model, failed.Message))
	}
	for i := range some {
		if err = errors.Join(err, f.alone(ctx, namespace, &some[i], texts[i])); ctx.Err() != nil || errors.Is(err, errStop) || errors.Is(err, errNoRoom) {
			break
		}
	}
	return err
}

// alone makes the vector of one entry of several.
func (f *Filler) alone(ctx context.Context, namespace string, b *Bare, text string) error {
	got, err := f.call(ctx, namespace, []string{text})
	if err == nil {
		return f.set(ctx, []Bare{*b}, got)
	}
	failed, ok := errors.AsType[*llm.Error](err)
	if ok && refused(failed) {
		return current(f.Entries.Refused(ctx, *b, f.Model, failed.Message))
	}
	if ok { // the others would fare alike
		err = errors.Join(errStop, err)
	}
	return err
}

// refused reports whether a fault may be that of the text. A server that is busy or away, and a configuration
// that is wrong, say nothing of it.
func refused(err *llm.Error) bool {
	return err.Class != llm.Retryable && err.Class != llm.NotPerformed && !err.Configured()
}

// set sets vectors. One that the registry does not take is a fault of the text.
func (f *Filler) set(ctx context.Context, some []Bare, got llm.Vectors) (err error) {
	for i := range got.Values {
		failed := f.Entries.Embed(ctx, some[i], Vector{Model: got.Model, Values: got.Values[i]})
		if errs.Is(failed, errs.InvalidArgument) {
			failed = f.Entries.Refused(ctx, some[i], f.Model, errs.From(failed).Message)
		}
		err = errors.Join(err, current(failed))
	}
	return err
}

// current is an error, unless it says that an entry was written or removed since.
func current(err error) error {
	if errs.Is(err, errs.Conflict) || errs.Is(err, errs.NotFound) {
		return nil
	}
	return err
}

// call makes one model call, which the namespace pays for.
func (f *Filler) call(ctx context.Context, namespace string, texts []string) (llm.Vectors, error) {
	id := ""
	if f.Payer != nil {
		id = f.NewID()
		most := f.Booked
		for _, text := range texts {
			most.Usage.Input += Tokens(len(text))
		}
		refusal, err := f.Payer.Reserve(ctx, namespace, id, most)
		if err == nil && refusal != "" {
			err = errs.New(errs.ResourceExhausted, "BUDGET_EXCEEDED", "vectors of namespace %s wait for room in its budget: %s", namespace, refusal).With(errNoRoom)
		}
		if err != nil {
			return llm.Vectors{}, err
		}
	}
	limited, stop := context.WithTimeout(ctx, embedTime)
	defer stop()
	got, err := f.Embedder.Embed(limited, texts)
	spent := got.Spent
	if e, ok := errors.AsType[*llm.Error](err); ok {
		spent = e.Used
	}
	if f.Payer == nil {
		return got, err
	}
	// What was used is booked, even if this process is about to stop.
	after, done := context.WithTimeout(context.WithoutCancel(ctx), bookTime)
	defer done()
	if unbooked := f.Payer.Settle(after, namespace, id, spent); unbooked != nil {
		f.Log.WarnContext(ctx, "what vectors of the memory used is not booked", slog.Any("err", unbooked), slog.String("namespace", namespace))
	}
	return got, err
}

// bookTime bounds the booking of a call.
const bookTime = 5 * time.Second

// Tokens is about how many tokens a text of some bytes has at most.
func Tokens(bytes int) int64 { return int64(bytes)/3 + 1 }
