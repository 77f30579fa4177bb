package executor_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// TestWebhookAddresses checks that a forbidden address, however it is written, is refused when the run is
// started or the schedule is made, and not only at the first delivery.
func TestWebhookAddresses(t *testing.T) {
	t.Parallel()
	f := serve(t, nil)
	schedules := executorv1.NewScheduleServiceClient(f.conn)
	start := func(url string) *executorv1.StartRunRequest {
		return &executorv1.StartRunRequest{Webhooks: []*executorv1.Webhook{{Url: url}},
			Graph: nodes(&graphv1.Node{Id: "n", Actor: "cel", Named: map[string]*graphv1.Payload{"expr": value(`"1"`)}})}
	}
	later, n := timestamppb.New(time.Now().Add(time.Hour)), 0 // nothing ends, so nothing is sent
	ways := map[string]func(t *testing.T, url string) error{
		"StartRun": func(t *testing.T, url string) error {
			req := start(url)
			req.StartTime = later
			_, err := f.StartRun(t.Context(), req)
			return err
		},
		"RunAndWait": func(t *testing.T, url string) error {
			req := start(url)
			req.StartTime, req.Wait = later, durationpb.New(time.Millisecond)
			_, err := f.RunAndWait(t.Context(), &executorv1.RunAndWaitRequest{Start: req})
			return err
		},
		"SignalWithStart": func(t *testing.T, url string) error {
			n++
			req := start(url)
			req.BusinessKey, req.StartTime = fmt.Sprint("key-", n), later
			_, err := f.SignalWithStart(t.Context(), &executorv1.SignalWithStartRequest{Name: "go", Start: req})
			return err
		},
		"CreateSchedule": func(t *testing.T, url string) error {
			n++
			_, err := schedules.CreateSchedule(t.Context(), &executorv1.CreateScheduleRequest{Schedule: &executorv1.Schedule{
				Id: fmt.Sprint("s", n), Cron: "0 0 1 1 *", Start: start(url)}})
			return err
		},
		"UpdateSchedule": func(t *testing.T, url string) error {
			n++
			s, err := schedules.CreateSchedule(t.Context(), &executorv1.CreateScheduleRequest{Schedule: &executorv1.Schedule{
				Id: fmt.Sprint("s", n), Cron: "0 0 1 1 *", Start: start("https://example.com/")}})
			require.NoError(t, err)
			s.Start.Webhooks[0].Url = url
			_, err = schedules.UpdateSchedule(t.Context(), &executorv1.UpdateScheduleRequest{Schedule: s, UpdateMask: everything})
			return err
		},
	}
	const address, invalid = "WEBHOOK_ADDRESS_REFUSED", "WEBHOOK_INVALID"
	refused := map[string]string{
		"ftp://example.com/": invalid, "file:///etc/passwd": invalid, "gopher://example.com/": invalid, "unix:///run/x.sock": invalid,
		"ws://example.com/": invalid, "data:text/plain,x": invalid, "//example.com/": invalid, "javascript:x": invalid, "https+unix://x/": invalid,
		"https://u@example.com/": invalid, "https://u:p@example.com/": invalid, "https://example.com:80@127.0.0.1/": invalid, "https://@example.com/": invalid,
		"https://example.com:0/": invalid, `https://example.com\@127.0.0.1/`: invalid, "https://127.0.0.1%2f.example.com/": invalid,
		"https:///": invalid, "https://:443/": invalid, "https://./": address, "https://../": address, "https://example..com/": address,
	}
	for _, host := range []string{
		"127.0.0.1", "127.0.0.1.", "10.1.2.3", "169.254.169.254", "0.0.0.0", "100.64.0.1", "192.88.99.1", "localhost", "LocalHost.", "x.localhost",
		"[::1]", "[::]", "[fec0::1]", "[3fff::1]", "[5f00::1]", "[fe80::1]",
		// IPv4 within IPv6, mapped and compatible
		"[::ffff:10.1.2.3]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[::a9fe:a9fe]",
		"[::ffff:0:127.0.0.1]", "[::ffff:0:a00:1]", // translated
		"[64:ff9b::10.0.0.1]", "[64:ff9b:1::a00:1]", // NAT64
		"[2002:a00:1::]", "[2001:0:a01:203::1]", // 6to4, Teredo
		"[2607:f8b0::5efe:10.0.0.1]", "[2607:f8b0::200:5efe:a00:1]", // ISATAP
		"2130706433", "2130706433.", "0x7f000001", "0X7F.1", "0x", "017700000001", "0177.0.0.1", "127.1", "127.0.1", "127.0.0.01", "0x8.8.8.8", "8.8.8.0x8",
		"1.2.3.4.5", "256.1.1.1", "example.1",
		"１２７.0.0.1", "127。0。0。1", "127.0.0.1。", "①②⑦.0.0.1", "a\u202eb.example",
		"[fe80::1%25eth0]", "[2607:f8b0::1%25eth0]", "[::1%25lo]",
	} {
		refused["http://"+host+"/"], refused["https://"+host+":8443/hook"] = address, address
	}
	accepted := []string{
		"https://example.com", "https://example.com./hook", "http://8.8.8.8/", "http://8.8.8.8./", "https://[2607:f8b0:4005:805::200e]/", "https://[2001:4860:4860::8888]:8443/",
		"https://xn--bcher-kva.example/", "https://bücher.example/", "HTTPS://EXAMPLE.COM/", "https://a_b.example/?x=1",
	}
	for way, call := range ways {
		t.Run(way+"/Refuses", func(t *testing.T) {
			var wrong []string
			for url, reason := range refused {
				err := call(t, url)
				if err == nil {
					wrong = append(wrong, url+" is accepted")
					continue
				}
				e := errs.From(grpckit.FromStatus(err))
				if e.Kind != errs.InvalidArgument || len(e.Violations) != 1 || e.Violations[0].Reason != reason || !strings.HasSuffix(e.Violations[0].Field, "webhooks[0].url") {
					wrong = append(wrong, fmt.Sprintf("%s: %v, want %s", url, e.Violations, reason))
				}
			}
			require.Empty(t, wrong)
		})
		t.Run(way+"/Accepts", func(t *testing.T) {
			for _, url := range accepted {
				require.NoError(t, call(t, url), url)
			}
		})
	}
}
