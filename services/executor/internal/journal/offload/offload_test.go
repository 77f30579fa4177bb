package offload_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/blob"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/offload"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/pg"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
)

const (
	ns   = "acme"
	over = 4 << 10
)

var template = pgtest.NewTemplate(func(ctx context.Context, url string) error {
	s, err := pg.Open(ctx, url, pg.Options{})
	if err != nil {
		return err
	}
	_, err = s.Migrations().Up(ctx)
	return errors.Join(err, s.Close())
})

func TestMain(m *testing.M) { testkit.Main(m) }

// journals runs fn over both journals, each with a blob store in files and one that speaks S3.
func journals(t *testing.T, fn func(w *world)) {
	t.Helper()
	backend := s3mem.New()
	server := httptest.NewServer(gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	for _, db := range []string{"SQLite", "Postgres"} {
		for _, kind := range []string{"File", "S3"} {
			t.Run(db+"/"+kind, func(t *testing.T) {
				w := &world{t: t}
				raw := "file://" + filepath.ToSlash(t.TempDir())
				if kind == "S3" {
					bucket := "b" + strings.ToLower(ids.New("x")[2:])
					require.NoError(t, backend.CreateBucket(bucket))
					raw = "s3://" + bucket + "?" + url.Values{"endpoint": {server.URL}, "region": {"here"}, "s3ForcePathStyle": {"true"}}.Encode()
				}
				var err error
				w.store, err = blob.Open(t.Context(), raw)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, w.store.Close()) })
				if db == "SQLite" {
					s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "j.db"), sqlite.Options{})
					require.NoError(t, err)
					_, err = s.Migrations().Up(t.Context())
					require.NoError(t, err)
					w.rows = s
				} else {
					s, err := pg.Open(t.Context(), template.New(t), pg.Options{MaxReaders: 2})
					require.NoError(t, err)
					w.rows = s
				}
				t.Cleanup(func() { require.NoError(t, w.rows.Close()) })
				w.me, err = w.rows.Register(t.Context(), "me", "")
				require.NoError(t, err)
				w.open(w.store)
				fn(w)
			})
		}
	}
}

type world struct {
	t     *testing.T
	rows  journal.Journal
	store *blob.Store
	me    journal.Owner
	s     *offload.Offload
	j     journal.Journal
}

// open begins anew with nothing in memory.
func (w *world) open(store *blob.Store) {
	w.t.Helper()
	var err error
	w.s, err = offload.New(w.rows, offload.Options{Store: store, Over: over, Compress: 1 << 10, Logger: testkit.Logger(w.t)})
	require.NoError(w.t, err)
	w.j = w.s.Around(w.rows)
}

// write runs fn with a writer.
func (w *world) write(fn func(wr *journal.Writer)) {
	w.t.Helper()
	wr := journal.NewWriter(w.rows, w.me, journal.WriterOptions{Packer: w.s, Logger: testkit.Logger(w.t)})
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- wr.Run(ctx) }()
	fn(wr)
	cancel()
	require.NoError(w.t, <-done)
}

func (w *world) objects() []string {
	w.t.Helper()
	names, err := w.store.Names(w.t.Context(), ns+"/", 1000)
	require.NoError(w.t, err)
	return names
}

// text is JSON of about n bytes that does not compress well.
func text(seed string, n int) string {
	b := make([]byte, n*3/4)
	_, _ = rand.Read(b) // never fails
	return `"` + seed + base64.RawStdEncoding.EncodeToString(b) + `"`
}

func start(id string, args string) *journal.Start {
	return &journal.Start{Append: journal.Append{Graph: []byte(`{"graph":"` + strings.Repeat("same ", 500) + `"}`), Events: []journal.Event{{Kind: 10, Data: []byte(`{"event":{}}`)}}}, Run: journal.Run{ID: id, Namespace: ns, GraphHash: "g", CreateTime: dbkit.Now(), Args: []byte(args), Status: journal.Status{State: journal.StateRunning}}}
}

func event(data string) []journal.Event {
	return []journal.Event{{Kind: 12, NodeID: "n", Visit: 1, Data: []byte(data)}}
}

func TestOffload(t *testing.T) {
	journals(t, func(w *world) {
		t := w.t
		ctx := t.Context()
		big, small := text("a", 3*over), `{"k":"`+strings.Repeat("small ", 300)+`"}`
		id := ids.New("run")
		graph := start(id, "").Graph
		snapshot := append([]byte{0, 0, 0, 2, '{', '}'}, text("s", 2*over)...)
		data := `{"event":{"outcome":{"values":[` + big + `,1]}}}`
		w.write(func(wr *journal.Writer) {
			_, err := wr.Do(ctx, journal.Write{Start: start(id, `[`+big+`]`)})
			require.NoError(t, err)
			_, err = wr.Do(ctx, journal.Write{Append: &journal.Append{Namespace: ns, RunID: id, ExpectedLastSeq: 1, Events: event(data), Snapshot: snapshot}})
			require.NoError(t, err)
			// Several at once, the later ones small: their order stays.
			var wg sync.WaitGroup
			for i := range 6 {
				d := small
				if i%3 == 0 {
					d = `{"i":` + fmt.Sprint(i) + `,"v":` + text("b", 2*over) + `}`
				}
				wg.Add(1)
				require.NoError(t, wr.Submit(journal.Write{Append: &journal.Append{Namespace: ns, RunID: id, ExpectedLastSeq: int64(2 + i), Events: event(d)}}, func(r journal.Result) {
					defer wg.Done()
					if r.Err != nil {
						t.Errorf("append %d: %v", i, r.Err)
					}
				}))
			}
			wg.Wait()
			posted, err := w.j.Enqueue(ctx, journal.EnqueueRequest{Command: journal.Command{Namespace: ns, RunID: id, Kind: journal.CommandSignal, Key: "k", Time: dbkit.Now()}})
			require.NoError(t, err)
			require.True(t, posted.New)
			require.Equal(t, `[`+big+`]`, string(posted.Run.Args))
			_, err = wr.Do(ctx, journal.Write{Append: &journal.Append{Namespace: ns, RunID: id, ExpectedLastSeq: 8, Events: event(`{"end":1}`),
				Status: &journal.Status{State: journal.StateCompleted}, Outcome: &journal.Outcome{Result: []byte(big), Outputs: []byte(`{"n":` + big + `}`)}}})
			require.NoError(t, err)
		})
		require.Len(t, w.objects(), 4, "what is the same is stored once")

		w.open(w.store)
		r, err := w.j.Get(ctx, ns, id)
		require.NoError(t, err)
		require.Equal(t, `[`+big+`]`, string(r.Args))
		require.Equal(t, big, string(r.Result))
		require.Equal(t, `{"n":`+big+`}`, string(r.Outputs))
		_, body, err := w.j.Graph(ctx, ns, id)
		require.NoError(t, err)
		require.True(t, bytes.Equal(graph, body))
		body, err = w.j.GraphBody(ctx, ns, "g")
		require.NoError(t, err)
		require.True(t, bytes.Equal(graph, body))
		es, err := w.j.Events(ctx, ns, id, 1, 100)
		require.NoError(t, err)
		require.Equal(t, data, string(es[0].Data))
		require.Equal(t, small, string(es[2].Data))
		l, err := w.j.Load(ctx, id)
		require.NoError(t, err)
		require.True(t, bytes.Equal(snapshot, l.Snapshot))

		raw, err := w.rows.Events(ctx, ns, id, 1, 100)
		require.NoError(t, err)
		require.Less(t, len(raw[0].Data), 200, "a stub stands for it")
		require.Less(t, len(raw[2].Data), 200, "compressed")

		// No store, a lost object, a wrong one: named errors all.
		w.open(nil)
		_, err = w.j.Get(ctx, ns, id)
		require.Equal(t, offload.ReasonBlobMissing, errs.ReasonOf(err), "%v", err)
		w.open(w.store)
		name := func() string {
			for _, n := range w.objects() {
				b, err := w.store.Get(ctx, n, 0)
				require.NoError(t, err)
				if bytes.Contains(b, []byte(big[1:20])) {
					return n
				}
			}
			return ""
		}()
		if name == "" { // it was compressed
			for _, n := range w.objects() {
				require.NoError(t, w.store.Put(ctx, n, []byte("x")))
			}
		} else {
			require.NoError(t, w.store.Put(ctx, name, []byte("x")))
		}
		_, err = w.j.Get(ctx, ns, id)
		require.Equal(t, offload.ReasonBlobCorrupt, errs.ReasonOf(err), "%v", err)
		for _, n := range w.objects() {
			require.NoError(t, w.store.Remove(ctx, n))
		}
		_, err = w.j.Load(ctx, id)
		require.Equal(t, offload.ReasonBlobMissing, errs.ReasonOf(err), "%v", err)
	})
}

func TestCollect(t *testing.T) {
	journals(t, func(w *world) {
		t := w.t
		ctx := t.Context()
		big := text("a", 2*over)
		id, other := ids.New("run"), ids.New("run")
		// A process that dies between the upload and the commit leaves an object to which nothing refers.
		orphan := start(ids.New("run"), text("o", 2*over))
		_, store := w.s.Pack(journal.Write{Start: orphan})
		require.NotNil(t, store)
		store(ctx)
		w.write(func(wr *journal.Writer) {
			for _, run := range []string{id, other} {
				_, err := wr.Do(ctx, journal.Write{Start: start(run, big)})
				require.NoError(t, err)
				_, err = wr.Do(ctx, journal.Write{Append: &journal.Append{Namespace: ns, RunID: run, ExpectedLastSeq: 1, Status: &journal.Status{State: journal.StateCompleted}}})
				require.NoError(t, err)
			}
		})
		require.Len(t, w.objects(), 2)
		n, err := w.s.Collect(ctx, time.Hour)
		require.NoError(t, err)
		require.Zero(t, n, "it is young")
		n, err = w.s.Collect(ctx, 0)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Len(t, w.objects(), 1)

		purge := func(run string) {
			_, err := w.rows.DeleteRun(ctx, ns, run, 0, nil)
			require.NoError(t, err)
			for more := true; more; {
				more, err = w.rows.PurgeRuns(ctx, 100)
				require.NoError(t, err)
			}
		}
		purge(id)
		n, err = w.s.Collect(ctx, 0)
		require.NoError(t, err)
		require.Zero(t, n, "another run refers to it")
		r, err := w.j.Get(ctx, ns, other)
		require.NoError(t, err)
		require.Equal(t, big, string(r.Args))
		purge(other)
		n, err = w.s.Collect(ctx, 0)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Empty(t, w.objects())
	})
}

func TestReplacedSnapshots(t *testing.T) {
	journals(t, func(w *world) {
		t := w.t
		ctx := t.Context()
		id := ids.New("run")
		var last []byte
		w.write(func(wr *journal.Writer) {
			_, err := wr.Do(ctx, journal.Write{Start: start(id, `[]`)})
			require.NoError(t, err)
			for i := range 3 {
				last = []byte(text("s", 3*over))
				_, err = wr.Do(ctx, journal.Write{Append: &journal.Append{Namespace: ns, RunID: id, ExpectedLastSeq: int64(1 + i), Events: event(`{}`), Snapshot: last}})
				require.NoError(t, err)
			}
		})
		require.Len(t, w.objects(), 3)
		_, err := w.s.Collect(ctx, 0)
		require.NoError(t, err)
		require.Len(t, w.objects(), 1)
		w.open(w.store)
		l, err := w.j.Load(ctx, id)
		require.NoError(t, err)
		require.True(t, bytes.Equal(last, l.Snapshot))
	})
}

func TestCollectRace(t *testing.T) {
	journals(t, func(w *world) {
		t := w.t
		ctx := t.Context()
		value := text("v", 2*over)
		put := func() journal.Write {
			packed, store := w.s.Pack(journal.Write{Start: start(ids.New("run"), value)})
			require.NotNil(t, store)
			require.NotEmpty(t, packed.Start.Blobs)
			return store(ctx)
		}
		orphan := put()
		require.NotEmpty(t, orphan.Start.Blobs)
		// Noted anew, it is young again, whatever its object's age.
		put()
		names, err := w.rows.OrphanBlobs(ctx, time.Minute, time.Hour, 10)
		require.NoError(t, err)
		require.Empty(t, names)
		names, err = w.rows.OrphanBlobs(ctx, 0, time.Hour, 10)
		require.NoError(t, err)
		require.Len(t, names, 1)
		others, err := w.rows.OrphanBlobs(ctx, 0, time.Hour, 10)
		require.NoError(t, err)
		require.Empty(t, others, "it is removed by one only")
		// The same value comes while it is removed: it stays with its row.
		inline := put()
		require.Empty(t, inline.Start.Blobs)
		// The collector dies before it has reported: another one does it again, later.
		require.NoError(t, w.store.Remove(ctx, w.objects()[0]))
		names, err = w.rows.OrphanBlobs(ctx, time.Hour, 0, 10)
		require.NoError(t, err)
		require.Len(t, names, 1)
		require.NoError(t, w.rows.ForgetBlobs(ctx, names))
		again := put()
		require.NotEmpty(t, again.Start.Blobs)
		require.Len(t, w.objects(), 1)
		// A commit that comes when all time of grace is over and the value is gone is refused: it cannot
		// refer to nothing.
		n, err := w.s.Collect(ctx, 0)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		for _, c := range []struct {
			write  journal.Write
			reason string
		}{{inline, ""}, {again, journal.ReasonRowRefused}} {
			res, err := w.rows.Commit(ctx, w.me, []journal.Write{c.write})
			require.NoError(t, err)
			require.Equal(t, c.reason, reason(res[0].Err))
		}
	})
}

func reason(err error) string {
	if err == nil {
		return ""
	}
	return errs.ReasonOf(err)
}

// away is an account that cannot be reached.
type away struct{ journal.Blobs }

func (away) NoteBlobs(context.Context, string, []journal.BlobRef) ([]journal.BlobState, error) {
	return nil, errors.New("away")
}

func TestPack(t *testing.T) {
	store, err := blob.Open(t.Context(), "mem://")
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	s, err := offload.New(away{}, offload.Options{Store: store, Over: over, Compress: 1 << 10})
	require.NoError(t, err)
	t.Run("Small/CostsNothing", func(t *testing.T) {
		w := journal.Write{Append: &journal.Append{Namespace: ns, RunID: "r", Events: event(`{"event":{}}`)}}
		require.Zero(t, testing.AllocsPerRun(100, func() { s.Pack(w) }))
	})
	t.Run("StoreAway/StaysWithTheRow", func(t *testing.T) {
		w, keep := s.Pack(journal.Write{Append: &journal.Append{Namespace: ns, RunID: "r", Events: event(text("a", 2*over))}})
		require.NotEmpty(t, w.Append.Blobs)
		w = keep(t.Context())
		require.Empty(t, w.Append.Blobs)
		require.Greater(t, len(w.Append.Events[0].Data), over/2)
	})
	t.Run("Writes/AreNotChanged", func(t *testing.T) {
		st := start("r", text("a", 2*over))
		args := string(st.Run.Args)
		s.Pack(journal.Write{Start: st})
		require.Equal(t, args, string(st.Run.Args))
		require.Empty(t, st.Blobs)
	})
}
