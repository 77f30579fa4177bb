package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/cli"
)

// The demo ends with an address that answers, and "epigraph dev" finds its run again.
func TestDemoAddress(t *testing.T) {
	data := t.TempDir()
	// until runs a command until it has printed an address of a run, which check is given before the command
	// is stopped.
	until := func(t *testing.T, check func(address, run string), args ...string) {
		t.Helper()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		address := regexp.MustCompile(`http://[^/]+/runs/(run_\w+)\n`)
		r, w := io.Pipe()
		checked := make(chan struct{})
		go func() {
			defer close(checked)
			defer stop()
			var text bytes.Buffer
			for part := make([]byte, 4096); ; {
				n, err := r.Read(part)
				text.Write(part[:n])
				if m := address.FindStringSubmatch(text.String()); m != nil {
					go func() { _, _ = io.Copy(io.Discard, r) }() // what the command prints until it ends
					check(m[0][:len(m[0])-1], m[1])
					return
				}
				if err != nil {
					t.Errorf("%v ended without an address: %s", args, text.String())
					return
				}
			}
		}()
		var errs bytes.Buffer
		code := cli.Main(ctx, build, args, cli.IO{Out: w, Err: &errs})
		require.NoError(t, w.Close())
		<-checked
		require.Equal(t, 0, code, "%s", errs.String())
	}
	// answers checks that a browser gets the console at the address, and that the API there has the run.
	answers := func(address, run string) {
		for path, want := range map[string]string{address: `<div id="root">`, regexp.MustCompile(`/runs/.*`).ReplaceAllString(address, "/v1/runs/"+run): "RUN_STATE_COMPLETED"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Accept", "text/html,application/json")
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			text, err := io.ReadAll(res.Body)
			if err != nil || !bytes.Contains(text, []byte(want)) {
				t.Errorf("%s: %v, without %s: %s", path, err, want, text)
			}
			_ = res.Body.Close()
		}
	}
	var made string
	t.Run("Stay/ServesTheRunUntilItIsStopped", func(t *testing.T) {
		until(t, func(address, run string) { made = run; answers(address, run) }, "demo", "--stay", "yes", "--data", data)
	})
	t.Run("Dev/TellsTheRunOfTheDemo", func(t *testing.T) {
		until(t, func(address, run string) {
			answers(address, run)
			if run != made {
				t.Errorf("%s is not the run of the demo, %s", run, made)
			}
		}, "dev", "--scripted", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--data", data)
	})
}
