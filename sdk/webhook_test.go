package epigraph_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	epigraph "github.com/epigraph-run/epigraph/sdk"
)

// signed are headers as Standard Webhooks describes them.
func signed(key []byte, id string, at time.Time, body string) http.Header {
	stamp := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + stamp + "." + body))
	h := http.Header{}
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", stamp)
	h.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return h
}

func TestVerifyWebhook(t *testing.T) {
	t.Parallel()
	const body = `{"id":"run_1/7/0","type":"run.ended","run_id":"run_1","sequence":7,"state":"RUN_STATE_FAILED","error":{"reason":"NO","node_id":"n"}}`
	raw := "a secret of this length"
	coded := "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(coded, "whsec_"))
	require.NoError(t, err)
	now := time.Now()
	t.Run("Signature/Holds", func(t *testing.T) {
		m, err := epigraph.VerifyWebhook(raw, signed([]byte(raw), "run_1/7/0", now, body), []byte(body))
		require.NoError(t, err)
		require.Equal(t, "run_1", m.RunID)
		require.Equal(t, epigraph.RunEnded, m.Type)
		require.EqualValues(t, 7, m.Sequence)
		require.Equal(t, &epigraph.WebhookError{Reason: "NO", NodeID: "n"}, m.Error)
		_, err = epigraph.VerifyWebhook(coded, signed(key, "x", now, body), []byte(body))
		require.NoError(t, err)
	})
	t.Run("Signature/VectorOfTheSpecification", func(t *testing.T) {
		h := signed(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), `{"test": 2432232314}`)
		require.Equal(t, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", h.Get("webhook-signature"))
	})
	t.Run("Signature/OneOfSeveral", func(t *testing.T) {
		h := signed([]byte(raw), "x", now, body)
		h.Set("webhook-signature", "v1,AAAA v1a,BBBB "+h.Get("webhook-signature"))
		_, err := epigraph.VerifyWebhook(raw, h, []byte(body))
		require.NoError(t, err)
	})
	for name, h := range map[string]http.Header{
		"OtherKey": signed([]byte("another secret here"), "x", now, body), "OtherBody": signed([]byte(raw), "x", now, body+" "),
		"Old": signed([]byte(raw), "x", now.Add(-6*time.Minute), body), "Early": signed([]byte(raw), "x", now.Add(6*time.Minute), body),
		"None": {}, "NotSigned": {"Webhook-Id": {"x"}, "Webhook-Timestamp": {strconv.FormatInt(now.Unix(), 10)}},
	} {
		t.Run("Refused/"+name, func(t *testing.T) {
			_, err := epigraph.VerifyWebhook(raw, h, []byte(body))
			require.ErrorIs(t, err, epigraph.ErrWebhookSignature)
		})
	}
	t.Run("Secret/Needed", func(t *testing.T) {
		_, err := epigraph.VerifyWebhook("", signed(nil, "x", now, body), []byte(body))
		require.Error(t, err)
		_, err = epigraph.VerifyWebhook("whsec_§", signed(nil, "x", now, body), []byte(body))
		require.Error(t, err)
	})
}
