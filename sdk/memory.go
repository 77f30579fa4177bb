package epigraph

import (
	"context"
	"errors"
	"io"
	"iter"

	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// Remember keeps an entry, which needs a scope and a text or a value. It takes the place of the one that the
// scope has of its key; with an etag only if that has not changed, and else the reason is ETAG_MISMATCH.
// Fields that the registry sets, such as the id, are ignored.
func (c *Client) Remember(ctx context.Context, m *registryv1.Memory) (*registryv1.Memory, error) {
	r, err := c.Memories.WriteMemory(ctx, &registryv1.WriteMemoryRequest{Memory: m})
	return r.GetMemory(), err
}

// SearchMemory finds entries, the best first. It reads the scopes that the request names, without one
// that of the namespace, and the registry records who has read. SearchMemory of c.Memories tells
// besides how many entries were not compared with an embedding.
func (c *Client) SearchMemory(ctx context.Context, what *registryv1.SearchMemoryRequest) ([]*registryv1.MemoryMatch, error) {
	r, err := c.Memories.SearchMemory(ctx, copyOf(what))
	return r.GetMatches(), err
}

// Memory reads an entry. If there is none, the reason is MEMORY_NOT_FOUND.
func (c *Client) Memory(ctx context.Context, id string) (*registryv1.Memory, error) {
	return c.Memories.GetMemory(ctx, &registryv1.GetMemoryRequest{MemoryId: id})
}

// ListMemory returns the entries that match the filter, those that were first written last come first; nil
// matches all of the namespace. With an agent these are what it has learned. An error is the last pair.
func (c *Client) ListMemory(ctx context.Context, filter *registryv1.ListMemoryRequest) iter.Seq2[*registryv1.Memory, error] {
	return all(func(token string) ([]*registryv1.Memory, string, error) {
		req := copyOf(filter)
		req.PageSize, req.PageToken = largePage, token
		m, err := c.Memories.ListMemory(ctx, req)
		return m.GetMemories(), m.GetNextPageToken(), err
	})
}

// DeleteMemory removes an entry. What an agent has learned comes back when it is learned again.
func (c *Client) DeleteMemory(ctx context.Context, id string) error {
	_, err := c.Memories.DeleteMemory(ctx, &registryv1.DeleteMemoryRequest{MemoryId: id})
	return err
}

// ExportMemory returns all entries of the namespace, the oldest first. An error is the last pair. It needs a
// key with the scope admin.
func (c *Client) ExportMemory(ctx context.Context) iter.Seq2[*registryv1.Memory, error] {
	return func(yield func(*registryv1.Memory, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // also when the caller stops early
		stream, err := c.Memories.ExportMemory(ctx, &registryv1.ExportMemoryRequest{})
		for err == nil {
			var m *registryv1.Memory
			if m, err = stream.Recv(); err == nil && !yield(m, nil) {
				return
			}
		}
		if !errors.Is(err, io.EOF) {
			yield(nil, err)
		}
	}
}

// ForgetUser removes the scope of a user, what runs and epics of the user wrote in other scopes, and the
// records of what these have read. It returns how many entries were removed. It needs a key with the scope
// admin.
func (c *Client) ForgetUser(ctx context.Context, user string) (int64, error) {
	return c.ForgetMemory(ctx, &registryv1.ForgetMemoryRequest{UserId: user})
}

// ForgetMemory removes all entries of a scope, of a user, or of the namespace, and returns how many. If it
// fails in between, what was removed stays so, and another call goes on.
func (c *Client) ForgetMemory(ctx context.Context, what *registryv1.ForgetMemoryRequest) (int64, error) {
	r, err := c.Memories.ForgetMemory(ctx, copyOf(what))
	return r.GetForgotten(), err
}
