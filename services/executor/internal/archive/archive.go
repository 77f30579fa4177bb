// Package archive owns the form in which runs are kept after they have left the journal: one object per run,
// lines of JSON, compressed. The first line is the run, the second its graph, the others its events, each as
// the journal had it. It must not know when a run is archived, nor the meaning of an event.
package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/epigraph-run/epigraph/internal/blob"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// Version is the version of the form; a change that old readers cannot read raises it.
const Version = 1

// page is how many events are read at once.
const page = 500

// Line is one line of an archived run; exactly one of its parts is set.
type Line struct {
	Version int    `json:"version,omitempty"`
	Run     *Run   `json:"run,omitempty"`
	Graph   *Graph `json:"graph,omitempty"`
	Event   *Event `json:"event,omitempty"`
}

// Run is the row of a run.
type Run struct {
	ID           string            `json:"id"`
	Namespace    string            `json:"namespace"`
	State        string            `json:"state"`
	Reason       string            `json:"reason,omitempty"`
	GraphName    string            `json:"graph_name,omitempty"`
	GraphHash    string            `json:"graph_hash"`
	TaskID       string            `json:"task_id,omitempty"`
	UserID       string            `json:"user_id,omitempty"`
	ChatID       string            `json:"chat_id,omitempty"`
	ThreadID     string            `json:"thread_id,omitempty"`
	BusinessKey  string            `json:"business_key,omitempty"`
	ParentID     string            `json:"parent_id,omitempty"`
	RootID       string            `json:"root_id,omitempty"`
	ForkedFrom   string            `json:"forked_from,omitempty"`
	ScheduleID   string            `json:"schedule_id,omitempty"`
	TraceParent  string            `json:"trace_parent,omitempty"`
	Machine      int               `json:"machine_version"`
	CreateTime   time.Time         `json:"create_time"`
	StartTime    time.Time         `json:"start_time,omitzero"`
	EndTime      time.Time         `json:"end_time,omitzero"`
	Labels       map[string]string `json:"labels,omitempty"`
	Usage        journal.Usage     `json:"usage"`
	CostNanoUSD  int64             `json:"cost_nano_usd"`
	Unpriced     int64             `json:"unpriced_calls,omitempty"`
	LastSeq      int64             `json:"last_seq"`
	CancelReason string            `json:"cancel_reason,omitempty"`
	Metadata     any               `json:"metadata,omitempty"`
	Args         any               `json:"args,omitempty"`
	Named        any               `json:"named,omitempty"`
	Context      any               `json:"context,omitempty"`
	Attachments  any               `json:"attachments,omitempty"`
	Result       any               `json:"result,omitempty"`
	Outputs      any               `json:"outputs,omitempty"`
	Error        any               `json:"error,omitempty"`
}

// Graph is the graph that the run ended with.
type Graph struct {
	Hash string `json:"hash"`
	Body any    `json:"body"`
}

// Event is one line of the journal.
type Event struct {
	Seq   int64     `json:"seq"`
	Time  time.Time `json:"time"`
	Kind  int32     `json:"kind"`
	Node  string    `json:"node,omitempty"`
	Visit int32     `json:"visit,omitempty"`
	Data  any       `json:"data,omitempty"`
}

// value is a text of JSON as it is, and anything else in base64.
func value(b []byte) any {
	switch {
	case len(b) == 0:
		return nil
	case json.Valid(b):
		return json.RawMessage(b)
	}
	return b
}

// Name is the name of a run's object.
func Name(namespace, runID string) string { return namespace + "/" + runID + ".jsonl.zst" }

// Put writes an ended run, whose values j must read plain, to a store. A repetition writes the same object
// again.
func Put(ctx context.Context, to *blob.Store, j journal.Reader, namespace, runID string) error {
	var out bytes.Buffer
	z, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return err
	}
	enc := json.NewEncoder(z)
	enc.SetEscapeHTML(false)
	if err := write(ctx, enc, j, namespace, runID); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return to.Put(ctx, Name(namespace, runID), out.Bytes())
}

func write(ctx context.Context, enc *json.Encoder, j journal.Reader, namespace, runID string) error {
	r, err := j.Get(ctx, namespace, runID)
	if err != nil {
		return err
	}
	if err := enc.Encode(Line{Version: Version, Run: &Run{
		ID: r.ID, Namespace: r.Namespace, State: r.State.String(), Reason: r.Reason, GraphName: r.GraphName, GraphHash: r.GraphHash,
		TaskID: r.TaskID, UserID: r.UserID, ChatID: r.ChatID, ThreadID: r.ThreadID, BusinessKey: r.BusinessKey, ParentID: r.ParentID, RootID: r.RootID,
		ForkedFrom: r.ForkedFrom, ScheduleID: r.ScheduleID, TraceParent: r.TraceParent, Machine: r.MachineVersion,
		CreateTime: r.CreateTime, StartTime: r.StartTime, EndTime: r.EndTime, Labels: r.Labels, Usage: r.Usage, CostNanoUSD: r.CostNanoUSD, Unpriced: r.UnpricedCalls,
		LastSeq: r.LastSeq, CancelReason: r.CancelReason, Metadata: value(r.Metadata), Args: value(r.Args), Named: value(r.Named), Context: value(r.Context),
		Attachments: value(r.Attachments), Result: value(r.Result), Outputs: value(r.Outputs), Error: value(r.Error),
	}}); err != nil {
		return fmt.Errorf("archive run %s: %w", runID, err)
	}
	hash, body, err := j.Graph(ctx, namespace, runID)
	if err != nil {
		return err
	}
	if err := enc.Encode(Line{Graph: &Graph{Hash: hash, Body: value(body)}}); err != nil {
		return fmt.Errorf("archive graph of run %s: %w", runID, err)
	}
	for after := int64(0); after < r.LastSeq; {
		es, err := j.Events(ctx, namespace, runID, after, page)
		if err != nil {
			return err
		}
		if len(es) == 0 {
			return fmt.Errorf("archive run %s: its journal ends at %d, its row says %d", runID, after, r.LastSeq)
		}
		for i := range es {
			e := &es[i]
			if err := enc.Encode(Line{Event: &Event{Seq: e.Seq, Time: e.Time, Kind: e.Kind, Node: e.NodeID, Visit: e.Visit, Data: value(e.Data)}}); err != nil {
				return fmt.Errorf("archive event %d of run %s: %w", e.Seq, runID, err)
			}
			after = e.Seq
		}
	}
	return nil
}
