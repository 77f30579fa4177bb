package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/internal/ids"
)

const (
	// URLEnv names a server to use instead of starting one; its role must be able to create databases.
	URLEnv = "TEST_POSTGRES_URL"
	// FsyncEnv set to "off" starts the shared server without fsync.
	FsyncEnv = "EPIGRAPH_PG_FSYNC"

	setupWait = 2 * time.Minute
)

// shared is the server of this test process. It is started by the first test that needs it and ends with the
// process, through the pipe that its parent holds.
var shared = sync.OnceValues(func() (*Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), setupWait)
	defer cancel()
	return Start(ctx, "", Options{NoFsync: os.Getenv(FsyncEnv) == "off"})
})

// New returns the URL of an empty database that is dropped after the test. It fails the test, and never skips
// it, if there is no server and none can be started.
func New(t testing.TB) string {
	t.Helper()
	return create(t, "")
}

// Template is a database that was migrated once and is copied for each test. The zero value is not
// usable; it is safe for concurrent use.
type Template struct {
	make func() (string, error)
}

// NewTemplate returns a template that migrate fills when the first test asks for a copy. Keep it in
// a package variable of the test. migrate must close every connection it opened.
func NewTemplate(migrate func(ctx context.Context, url string) error) *Template {
	return &Template{make: sync.OnceValues(func() (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), setupWait)
		defer cancel()
		name := freshName("tmpl")
		if err := execute(ctx, `CREATE DATABASE `+name); err != nil {
			return "", err
		}
		u, err := urlOf(name)
		if err != nil {
			return "", err
		}
		if err := migrate(ctx, u); err != nil {
			return "", fmt.Errorf("migrate template: %w", err)
		}
		return name, nil
	})}
}

// New returns the URL of a fresh copy of the template that is dropped after the test.
func (m *Template) New(t testing.TB) string {
	t.Helper()
	name, err := m.make()
	if err != nil {
		t.Fatal(err)
	}
	return create(t, name)
}

func create(t testing.TB, template string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setupWait)
	defer cancel()
	name := freshName("test")
	stmt := `CREATE DATABASE ` + name
	if template != "" {
		stmt += ` TEMPLATE ` + template
	}
	if err := execute(ctx, stmt); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), setupWait)
		defer cancel()
		if err := execute(ctx, `DROP DATABASE `+name+` WITH (FORCE)`); err != nil {
			t.Log(err)
		}
	})
	u, err := urlOf(name)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func freshName(kind string) string { return ids.New("epigraph_" + kind) }

func urlOf(database string) (string, error) {
	if env := os.Getenv(URLEnv); env != "" {
		u, err := url.Parse(env)
		if err != nil {
			return "", errors.New(URLEnv + " is not a URL")
		}
		if database != "" {
			u.Path = "/" + database
		}
		return u.String(), nil
	}
	s, err := shared()
	if err != nil {
		return "", err
	}
	return s.URL(database), nil
}

func execute(ctx context.Context, stmt string) error {
	u, err := urlOf("")
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, u)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, stmt)
	return errors.Join(err, conn.Close(ctx))
}
