package grpckit_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

func (e *executor) DeleteRun(ctx context.Context, r *executorv1.DeleteRunRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, e.remove(ctx, r)
}

func (e *executor) BulkDeleteRuns(ctx context.Context, _ *executorv1.BulkDeleteRunsRequest) (*executorv1.BulkDeleteRunsResponse, error) {
	return &executorv1.BulkDeleteRunsResponse{}, e.bulk(ctx)
}

// TestDeleted reads the log lines about deletions, which are the only record of the caller.
func TestDeleted(t *testing.T) {
	t.Parallel()
	// told returns the log's lines of level WARN about a deletion that ends with fail.
	told := func(t *testing.T, call func(executorv1.ExecutorServiceClient) error, fail error, removed ...string) (lines []string) {
		t.Helper()
		r := start(t, grpckit.Options{Auth: grpckit.AuthConfig{Keys: []grpckit.APIKey{{Name: "ada", Namespace: "acme", Secret: conf.NewSecret("key-of-ada"), Scopes: access.Scopes()}}}})
		r.svc.remove = func(context.Context, *executorv1.DeleteRunRequest) error { return fail }
		r.svc.bulk = func(ctx context.Context) error {
			grpckit.Deleted(ctx, removed...)
			return fail
		}
		err := call(r.client(t, grpckit.DialOptions{Token: conf.NewSecret("key-of-ada")}))
		require.Equal(t, fail == nil, err == nil, "%v", err)
		for line := range strings.Lines(r.log.String()) {
			if at := strings.Index(line, "level=WARN"); at >= 0 && strings.Contains(line, "deleted") {
				line, _, _ = strings.Cut(line[at:], " request_id=")
				lines = append(lines, line)
			}
		}
		return lines
	}
	one := func(c executorv1.ExecutorServiceClient) error {
		_, err := c.DeleteRun(t.Context(), &executorv1.DeleteRunRequest{RunId: "run_1"})
		return err
	}
	many := func(c executorv1.ExecutorServiceClient) error {
		_, err := c.BulkDeleteRuns(t.Context(), &executorv1.BulkDeleteRunsRequest{Filter: &executorv1.RunFilter{TaskId: "task_1"}})
		return err
	}
	const of = " namespace=acme principal=key:ada"
	t.Run("One/IsTold", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"level=WARN msg=deleted kind=run id=run_1" + of}, told(t, one, nil))
	})
	t.Run("One/RefusedIsNotTold", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, told(t, one, errs.New(errs.NotFound, "RUN_NOT_FOUND", "no")))
		require.Empty(t, told(t, one, errs.New(errs.FailedPrecondition, "RUN_OPEN", "no")))
	})
	t.Run("One/UnclearIsToldAsSuch", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{`level=WARN msg="may have been deleted" kind=run id=run_1` + of}, told(t, one, errors.New("lost after the commit")))
	})
	t.Run("Many/EachIsTold", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"level=WARN msg=deleted kind=run id=run_2" + of, "level=WARN msg=deleted kind=run id=run_3" + of}, told(t, many, nil, "run_2", "run_3"))
	})
	t.Run("Many/ThoseBeforeAFailureAreTold", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"level=WARN msg=deleted kind=run id=run_2" + of}, told(t, many, errors.New("lost"), "run_2"))
	})
	t.Run("Many/NoneIsNotTold", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, told(t, many, nil))
	})
}
