package record

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// roundTrip writes d with its own sequence, and reads it back.
func roundTrip(t *testing.T, d *Durable) (*Durable, journal.Event) {
	t.Helper()
	row, err := EncodeEvent(d)
	require.NoError(t, err)
	row.RunID, row.Seq = "run_x", d.Seq
	back, err := DecodeEvent(row)
	require.NoError(t, err)
	return back, row
}

// jsonRoundTrip writes d in JSON, and reads it back.
func jsonRoundTrip(t *testing.T, d *Durable) *Durable {
	t.Helper()
	raw, err := json.Marshal(&d.Event)
	require.NoError(t, err)
	ev, err := workgraph.DecodeEvent(raw)
	require.NoError(t, err)
	return &Durable{Event: ev, StartTime: d.StartTime, Actor: d.Actor, RequestID: d.RequestID, Cached: d.Cached, GraphChange: d.GraphChange}
}

// nodeEnded is the end of a node with two successors, the most frequent event.
func nodeEnded(at time.Time, value json.RawMessage) *Durable {
	return &Durable{
		Event: workgraph.Event{Version: workgraph.MachineVersion, Seq: 7, Kind: workgraph.AttemptEnded, At: at, Ref: workgraph.Ref{Node: "n1", Visit: 1}, Attempt: 1,
			Outcome: &workgraph.Outcome{Values: []json.RawMessage{value}},
			Steps: []workgraph.Step{
				{Op: workgraph.OpComplete, Node: "n1", Visit: 1},
				{Op: workgraph.OpEdge, Node: "n1", Visit: 1, To: "n2", Kind: workgraph.DataEdge, Live: true},
				{Op: workgraph.OpEdge, Node: "n1", Visit: 1, To: "n3", Note: "CONDITION"},
				{Op: workgraph.OpEnter, Node: "n2", Visit: 1, Detail: &workgraph.Detail{Inputs: []workgraph.InputRef{{Node: "n1", Visit: 1}}}},
			}},
		StartTime: at.Truncate(time.Microsecond).Add(-1500 * time.Microsecond), Actor: "echo",
	}
}

func TestCompactEvents(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	micros := at.Truncate(time.Microsecond)
	value := json.RawMessage(`{"text":"a result"}`)
	ended := func(change func(*Durable)) *Durable {
		d := nodeEnded(at, value)
		change(d)
		return d
	}
	for _, c := range []struct {
		name   string
		d      *Durable
		inJSON bool
	}{
		{name: "Node", d: ended(func(*Durable) {})},
		{name: "WholeMicroseconds", d: ended(func(d *Durable) { d.At = micros })},
		{name: "Item", d: ended(func(d *Durable) { d.Item, d.Steps[0].Item = 3, 3 })},
		{name: "Intent", d: &Durable{Event: workgraph.Event{Version: workgraph.MachineVersion, Seq: 4, Kind: workgraph.AttemptStarted, At: at,
			Ref: workgraph.Ref{Node: "n1", Visit: 2, Item: 3}, Attempt: 4, Generation: 3}}},
		{name: "Cached", d: ended(func(d *Durable) { d.Cached, d.Attempt = true, 0 })},
		{name: "Stop", d: ended(func(d *Durable) { d.Outcome.Stop = workgraph.Terminate })},
		{name: "NoValue", d: ended(func(d *Durable) { d.Outcome.Values = nil })},
		{name: "NoSteps", d: ended(func(d *Durable) { d.Steps = nil })},
		{name: "Failed", inJSON: true, d: ended(func(d *Durable) { d.Outcome, d.Error = nil, workgraph.Errorf(workgraph.Permanent, "X", "y") })},
		{name: "Usage", inJSON: true, d: ended(func(d *Durable) { d.Outcome.Usage = []workgraph.Usage{{Model: "m", InputTokens: 3}} })},
		{name: "State", inJSON: true, d: ended(func(d *Durable) { d.Outcome.State = map[string]json.RawMessage{"k": value} })},
		{name: "Values", inJSON: true, d: ended(func(d *Durable) { d.Steps[0].Detail = &workgraph.Detail{Values: []json.RawMessage{value}} })},
		{name: "Regraph", inJSON: true, d: ended(func(d *Durable) { d.GraphChange = &GraphChange{Was: "a", Hash: "b"} })},
		{name: "ClockWentBack", inJSON: true, d: ended(func(d *Durable) { d.StartTime = micros.Add(time.Second) })},
		{name: "Start", d: &Durable{RequestID: "req-1", Event: workgraph.Event{Version: workgraph.MachineVersion, Seq: 1, Kind: workgraph.RunStarted, At: at, Input: &workgraph.Input{},
			Steps: []workgraph.Step{{Op: workgraph.OpEnter, Node: "n1", Visit: 1}}}}},
		{name: "StartWithInput", inJSON: true, d: &Durable{Event: workgraph.Event{Version: workgraph.MachineVersion, Seq: 1, Kind: workgraph.RunStarted, At: at,
			Input: &workgraph.Input{Args: []json.RawMessage{value}}}}},
		{name: "End", d: &Durable{Event: workgraph.Event{Version: workgraph.MachineVersion, Seq: 9, Kind: workgraph.RunEnded, At: at,
			End: &workgraph.RunEnd{Status: workgraph.StatusCompleted, Outputs: map[string]json.RawMessage{"n9": value}, Result: value}}}},
		{name: "EndOfTwo", d: &Durable{Event: workgraph.Event{Version: workgraph.MachineVersion, Seq: 9, Kind: workgraph.RunEnded, At: at,
			End: &workgraph.RunEnd{Status: workgraph.StatusCompleted, Reason: workgraph.ReasonTerminated,
				Outputs: map[string]json.RawMessage{"a": value, "b": json.RawMessage("1")}, Result: json.RawMessage(`[{"text":"a result"},1]`)}}}},
		{name: "EndInFailure", inJSON: true, d: &Durable{Event: workgraph.Event{Version: workgraph.MachineVersion, Seq: 9, Kind: workgraph.RunEnded, At: at,
			End: &workgraph.RunEnd{Status: workgraph.StatusFailed, Error: workgraph.Errorf(workgraph.Permanent, "X", "y")}}}},
		{name: "EndOfUnknownCalls", inJSON: true, d: &Durable{Event: workgraph.Event{Version: workgraph.MachineVersion, Seq: 9, Kind: workgraph.RunEnded, At: at,
			End: &workgraph.RunEnd{Status: workgraph.StatusCanceled, Reason: workgraph.ReasonCancelRequest, Unknown: []workgraph.Ref{{Node: "pay", Visit: 1}}}}}},
		{name: "StartWithBudget", inJSON: true, d: &Durable{Event: workgraph.Event{Version: workgraph.MachineVersion, Seq: 1, Kind: workgraph.RunStarted, At: at,
			Budget: &workgraph.Budget{Tokens: new(int64)}}}},
		{name: "Spent", inJSON: true, d: &Durable{Event: workgraph.Event{Version: workgraph.MachineVersion, Seq: 1, Kind: workgraph.RunResumed, At: at, Spent: &workgraph.Spent{Tokens: 1}}}},
		{name: "Pause", inJSON: true, d: ended(func(d *Durable) { d.Steps = append(d.Steps, workgraph.Step{Op: workgraph.OpPause, Note: "X"}) })},
		{name: "Signal", inJSON: true, d: &Durable{Event: workgraph.Event{Version: workgraph.MachineVersion, Seq: 3, Kind: workgraph.SignalReceived, At: at, Signal: "go"}}},
	} {
		t.Run("Stored/"+c.name, func(t *testing.T) {
			t.Parallel()
			got, row := roundTrip(t, c.d)
			require.Equal(t, jsonRoundTrip(t, c.d), got)
			require.Equal(t, c.inJSON, row.Data[0] == '{')
		})
	}
	t.Run("Stored/IsSmall", func(t *testing.T) {
		t.Parallel()
		_, row := roundTrip(t, ended(func(*Durable) {}))
		require.Less(t, len(row.Data), 75)
	})
	t.Run("Stored/EveryKindOfEvent", func(t *testing.T) {
		t.Parallel()
		journals, err := filepath.Glob("../../../../../workgraph/testdata/golden/v1-*.jsonl")
		require.NoError(t, err)
		require.NotEmpty(t, journals)
		inJSON, events := 0, 0
		for _, path := range journals {
			f, err := os.Open(path)
			require.NoError(t, err)
			lines := bufio.NewScanner(f)
			lines.Buffer(nil, 16<<20)
			for lines.Scan() {
				ev, err := workgraph.DecodeEvent(lines.Bytes())
				if err != nil || ev.Kind == "" || rowKind(ev.Kind) == 0 {
					continue
				}
				got, row := roundTrip(t, &Durable{Event: ev})
				require.Equal(t, &Durable{Event: ev}, got, "%s", lines.Bytes())
				if events++; row.Data[0] == '{' {
					inJSON++
				}
			}
			require.NoError(t, lines.Err())
			require.NoError(t, f.Close())
		}
		require.Greater(t, events, 20)
		require.Less(t, inJSON, events)
	})
	t.Run("Stored/ResultThatIsNoJSONIsRefused", func(t *testing.T) {
		t.Parallel()
		_, err := EncodeEvent(ended(func(d *Durable) { d.Outcome.Values[0] = json.RawMessage(`{`) }))
		require.Error(t, err)
	})
	// A new field must be added to the compact form, or be refused by it. Events do not have an outcome's
	// threads and payer.
	t.Run("Form/KnowsEveryField", func(t *testing.T) {
		t.Parallel()
		for typ, fields := range map[reflect.Type]int{
			reflect.TypeFor[workgraph.Event](): 28, reflect.TypeFor[workgraph.Step](): 9, reflect.TypeFor[workgraph.Detail](): 24,
			reflect.TypeFor[workgraph.Outcome](): 12, reflect.TypeFor[workgraph.RunEnd](): 8, reflect.TypeFor[workgraph.InputRef](): 3,
			reflect.TypeFor[workgraph.Input](): 2, reflect.TypeFor[workgraph.Ref](): 3, reflect.TypeFor[Durable](): 7,
		} {
			require.Equal(t, fields, typ.NumField(), typ.Name())
		}
	})
}

// BenchmarkEventForm writes and reads the end of a node, in JSON and in the compact form.
func BenchmarkEventForm(b *testing.B) {
	d := nodeEnded(time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC), json.RawMessage(`{"text":"a result"}`))
	for _, c := range []struct {
		name   string
		encode func() ([]byte, error)
	}{
		{"JSON", func() ([]byte, error) { return plainEvent(d) }},
		{"Compact", func() ([]byte, error) {
			row, err := EncodeEvent(d)
			return row.Data, err
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			row, err := EncodeEvent(d)
			require.NoError(b, err)
			row.RunID, row.Seq = "run_x", d.Seq
			b.ReportAllocs()
			for b.Loop() {
				if row.Data, err = c.encode(); err == nil {
					_, err = DecodeEvent(row)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(row.Data)), "B/event")
		})
	}
}

func FuzzCompactEvent(f *testing.F) {
	d := &Durable{Event: workgraph.Event{Version: workgraph.MachineVersion, Seq: 7, Kind: workgraph.AttemptEnded, At: time.Unix(1, 0).UTC(), Ref: workgraph.Ref{Node: "n1", Visit: 1}, Attempt: 1,
		Outcome: &workgraph.Outcome{Values: []json.RawMessage{json.RawMessage("1")}}, Steps: []workgraph.Step{{Op: workgraph.OpComplete, Node: "n1", Visit: 1}}}}
	row, err := EncodeEvent(d)
	require.NoError(f, err)
	f.Add(row.Data)
	f.Add([]byte{compactForm, 2, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		in := journal.Event{RunID: "r", Seq: 1, Kind: 12, NodeID: "n1", Visit: 1, Time: time.Unix(1, 0), Data: data}
		got, err := DecodeEvent(in)
		if err != nil || data[0] != compactForm {
			return
		}
		again, err := EncodeEvent(got)
		if err != nil {
			return // an invalid JSON value
		}
		again.RunID, again.Seq = in.RunID, in.Seq
		back, err := DecodeEvent(again)
		require.NoError(t, err)
		require.Equal(t, got, back)
	})
}
