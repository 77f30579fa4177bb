package stack_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit"
)

// TestComputing takes all turns of a namespace in dev. Whichever service it asks then makes it wait: a
// namespace has its share of the processors once, not once at each service.
func TestComputing(t *testing.T) {
	t.Parallel()
	d := openDev(t, stack.DevOptions{DataDir: t.TempDir(), Config: quiet()})
	run(t, d)
	require.NoError(t, d.Ready(testkit.Context(t, 20*time.Second)))
	ask := func(long time.Duration, path, body string) error {
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+d.HTTPAddr()+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		if res.StatusCode != http.StatusOK {
			err = errors.New(res.Status)
		}
		return errors.Join(err, res.Body.Close())
	}
	both := func(long time.Duration) (parse, validate error) {
		var wg sync.WaitGroup
		wg.Go(func() { parse = ask(long, "/v1/plans:parse", `{"text": "A -> B"}`) })
		wg.Go(func() {
			validate = ask(long, "/v1/graphs:validate", `{"graph": {"nodes": [{"id": "a", "actor": "cel", "named": {"expr": "1"}}]}}`)
		})
		wg.Wait()
		return parse, validate
	}
	answered := func() {
		parse, validate := both(20 * time.Second)
		require.NoError(t, parse)
		require.NoError(t, validate)
	}
	answered() // the next ones are quick
	var leave []func()
	for l, ok := d.Computing().Try(grpckit.DefaultNamespace); ok; l, ok = d.Computing().Try(grpckit.DefaultNamespace) {
		leave = append(leave, l)
	}
	parse, validate := both(300 * time.Millisecond)
	require.ErrorIs(t, parse, context.DeadlineExceeded)
	require.ErrorIs(t, validate, context.DeadlineExceeded)
	for _, l := range leave {
		l()
	}
	answered()
}
