package telegram_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/telegram"
	"github.com/epigraph-run/epigraph/internal/testkit/telegramtest"
)

func client(t *testing.T, address string) *telegram.Client {
	t.Helper()
	c, err := telegram.New(telegramtest.Token, address, http.DefaultTransport)
	require.NoError(t, err)
	return c
}

func TestClient(t *testing.T) {
	t.Parallel()
	t.Run("PollsBringEachUpdateUntilItIsConfirmed", func(t *testing.T) {
		t.Parallel()
		s := telegramtest.New(t)
		c := client(t, s.URL)
		id := s.Says(7, 70, "/ask@a_bot  when?")
		for range 2 {
			got, err := c.GetUpdates(t.Context(), 0, time.Minute)
			require.NoError(t, err)
			require.Len(t, got, 1)
			require.Equal(t, id, got[0].ID)
			require.Equal(t, int64(70), got[0].Chat)
			require.Equal(t, telegram.User{ID: 7, Name: "Ada 7"}, got[0].User)
			require.Equal(t, "ask", got[0].Command)
			require.Equal(t, "when?", got[0].Rest)
		}
		got, err := c.GetUpdates(t.Context(), id+1, 0)
		require.NoError(t, err)
		require.Empty(t, got)
		s.Confirmed()
	})
	t.Run("WhatIsNoMessageComesWithoutChat", func(t *testing.T) {
		t.Parallel()
		s := telegramtest.New(t)
		s.Add(map[string]any{"message": map[string]any{"photo": []int{1}}})
		s.Add(map[string]any{"message": "of another form"})
		s.Add(map[string]any{"message": map[string]any{"text": strings.Repeat("x", telegram.MaxUpdate)}})
		got, err := client(t, s.URL).GetUpdates(t.Context(), 0, 0)
		require.NoError(t, err)
		require.Len(t, got, 3)
		for _, u := range got {
			require.Zero(t, u.Chat)
		}
	})
	t.Run("TheLaterOfTwoPollsEndsTheOther", func(t *testing.T) {
		t.Parallel()
		s := telegramtest.New(t)
		c := client(t, s.URL)
		failed := make(chan error, 1)
		go func() {
			_, err := c.GetUpdates(t.Context(), 0, time.Minute)
			failed <- err
		}()
		s.Polled(1)
		go func() { _, _ = c.GetUpdates(t.Context(), 0, time.Minute) }()
		err := <-failed
		e, ok := errors.AsType[*telegram.Error](err)
		require.True(t, ok, "got %v", err)
		require.True(t, e.Conflict())
		s.Says(1, 1, "ends the other")
	})
	t.Run("APauseIsTold", func(t *testing.T) {
		t.Parallel()
		s := telegramtest.New(t)
		s.Refuse("sendMessage", 1, http.StatusTooManyRequests, 7)
		err := client(t, s.URL).SendMessage(t.Context(), 1, "x")
		e, ok := errors.AsType[*telegram.Error](err)
		require.True(t, ok)
		require.Equal(t, 7*time.Second, e.RetryAfter)
		require.True(t, e.Temporary())
		require.NotContains(t, err.Error(), telegramtest.Token, "the server wrote it into its answer")
	})
	t.Run("WebhookIsSetAndTaken", func(t *testing.T) {
		t.Parallel()
		s := telegramtest.New(t)
		c := client(t, s.URL)
		require.NoError(t, c.SetWebhook(t.Context(), "https://example.org/hook", "s3cret"))
		address, secret := s.Webhook()
		require.Equal(t, "https://example.org/hook", address)
		require.Equal(t, "s3cret", secret)
		_, err := c.GetUpdates(t.Context(), 0, 0)
		require.Error(t, err)
		require.NoError(t, c.DeleteWebhook(t.Context()))
		_, err = c.GetUpdates(t.Context(), 0, 0)
		require.NoError(t, err)
		require.NoError(t, c.SendTyping(t.Context(), 1))
	})
	t.Run("TheTokenIsInNoError", func(t *testing.T) {
		t.Parallel()
		gone := httptest.NewServer(http.NotFoundHandler())
		gone.Close()
		redirects := httptest.NewServer(http.RedirectHandler("/elsewhere", http.StatusFound))
		defer redirects.Close()
		endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range 9 << 10 {
				_, _ = w.Write(make([]byte, 1<<10))
			}
		}))
		defer endless.Close()
		for _, address := range []string{gone.URL, redirects.URL, endless.URL} {
			err := client(t, address).SendMessage(t.Context(), 1, "x")
			require.Error(t, err)
			require.NotContains(t, err.Error(), telegramtest.Token)
			require.NotContains(t, err.Error(), "test-token")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, client(t, gone.URL).SendMessage(ctx, 1, "x"), context.Canceled)
	})
	t.Run("FaultsOfTheSettings", func(t *testing.T) {
		t.Parallel()
		for _, c := range [][2]string{{"", ""}, {"1:a/../b", ""}, {"1:a", "ftp://x"}, {"1:a", "https://"}, {"1:a", "https://x?y"}} {
			_, err := telegram.New(c[0], c[1], nil)
			require.Error(t, err)
		}
	})
}

func TestSplit(t *testing.T) {
	t.Parallel()
	line := strings.Repeat("x", 3000)
	require.Equal(t, []string{"a"}, telegram.Split("  a\n", 3))
	require.Empty(t, telegram.Split(" \n ", 3))
	require.Equal(t, []string{line, line}, telegram.Split(line+"\n"+line, 3), "at the end of a line")
	require.Equal(t, []string{line, line}, telegram.Split(line+" "+line, 3), "at a space")
	require.Len(t, telegram.Split(strings.Repeat("x", telegram.MaxText+1), 3), 2, "between characters")
	require.Len(t, telegram.Split(strings.Repeat("😀", telegram.MaxText/2+1), 3), 2, "as clients count")
	long := telegram.Split(strings.Repeat("x", 10*telegram.MaxText), 3)
	require.Len(t, long, 3)
	require.True(t, strings.HasSuffix(long[2], "…"))
}

func FuzzSplit(f *testing.F) {
	f.Add("a b\nc", 3)
	f.Add(strings.Repeat("😀 ", 3000), 2)
	f.Add("\xff\x00", 1)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit = max(1, min(limit, 50))
		parts := telegram.Split(text, limit)
		require.LessOrEqual(t, len(parts), limit)
		for _, p := range parts {
			require.True(t, utf8.ValidString(p))
			require.NotEmpty(t, strings.TrimSpace(p))
			require.LessOrEqual(t, len(utf16.Encode([]rune(p))), telegram.MaxText)
		}
	})
}

func FuzzReadUpdate(f *testing.F) {
	f.Add([]byte(`{"update_id":1,"message":{"message_id":2,"text":"/a@b c","chat":{"id":3},"from":{"id":4,"first_name":"x"}}}`))
	f.Add([]byte(`{"update_id":1,"message":[]}`))
	f.Add([]byte(`{"message":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		u, err := telegram.ReadUpdate(text)
		if err != nil {
			return
		}
		require.Positive(t, u.ID)
		require.Equal(t, u.Chat == 0, u.Text == "")
		require.LessOrEqual(t, len(u.User.Name), 256)
		require.NotContains(t, u.Text+u.User.Name, "\x00")
	})
}
