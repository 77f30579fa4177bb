// Package pgtest owns real PostgreSQL servers for tests, benchmarks and chaos drills: it finds the
// binaries, starts a private server on a Unix socket in a temporary directory, and makes sure the
// server ends with the process that started it, however that process ends. It must not know any schema.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// BinEnv names the directory that holds initdb and postgres, ahead of every other place.
	BinEnv = "EPIGRAPH_PG_BIN"

	minMajor  = 14
	startWait = 30 * time.Second
	port      = "5432"
)

// ErrNoBinaries says that no PostgreSQL of a usable version is installed, and what to do.
var ErrNoBinaries = fmt.Errorf("no PostgreSQL >= %d found: apt-get install postgresql, or set %s or TEST_POSTGRES_URL", minMajor, BinEnv)

// supervisor is the script of the parent of the server. It holds the read end of a pipe; when the word on it
// says so, or when the pipe breaks because our process died, it stops the server, and in the second case
// cleans up.
const supervisor = `
"$1" -D "$2" -k "$3" >>"$2.log" 2>&1 &
pid=$!
word=orphan
read -r word
case $word in
fast) kill -INT $pid ;;
*) kill -QUIT $pid ;;
esac
wait $pid
if [ "$word" = orphan ] || [ -z "$word" ]; then rm -rf "$2" "$2.log" "$3"; [ -n "$4" ] && rm -rf "$4"; fi
exit 0
`

// Options tune a server; the zero value is durable and has PostgreSQL's own defaults.
type Options struct {
	// NoFsync trades durability for speed; such a server proves nothing about crashes.
	NoFsync bool
	// Settings are further lines of postgresql.conf.
	Settings map[string]string
}

// Server is one private PostgreSQL server. Its methods are not safe for concurrent use, except URL.
type Server struct {
	bin        string
	root       string
	sock       string
	data       string
	owned      bool
	cred       *syscall.SysProcAttr
	supervisor *exec.Cmd
	pipe       *os.File
}

// Start creates a database cluster below dir and starts a server on it. An empty dir means a
// temporary directory that Stop removes. A given dir must be reachable for user postgres when the
// caller is root. ctx bounds the start only.
func Start(ctx context.Context, dir string, opts ...Options) (*Server, error) {
	bin, err := findBinaries(ctx)
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, root: dir}
	if dir == "" {
		if s.root, err = os.MkdirTemp("", "epigraph-pg-"); err != nil {
			return nil, err
		}
		s.owned = true
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	s.data = filepath.Join(s.root, "data")
	// Socket paths are limited to 107 bytes, so the socket does not live below dir.
	if s.sock, err = os.MkdirTemp("", "epg"); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	if err := s.init(ctx, opts); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

// URL returns a connection URL for a database of this server; an empty name means "postgres".
func (s *Server) URL(database string) string {
	if database == "" {
		database = "postgres"
	}
	return "postgres://postgres@/" + database + "?host=" + s.sock + "&port=" + port + "&sslmode=disable"
}

// Stop ends the server cleanly and removes what Start made in temporary directories. Calling it again does
// nothing.
func (s *Server) Stop() error {
	return errors.Join(s.halt("fast"), s.remove())
}

// Crash stops the server at once as a power cut of the process would, leaving recovery to the next Restart.
func (s *Server) Crash() error { return s.halt("immediate") }

// Restart stops the server if it runs, cleanly, and starts it again on the same data and URL.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.halt("fast"); err != nil {
		return err
	}
	return s.start(ctx)
}

func (s *Server) init(ctx context.Context, opts []Options) error {
	var o Options
	if len(opts) > 0 {
		o = opts[0]
	}
	// The server must not sit in our process group, else Ctrl-C would reach it before us.
	s.cred = &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 {
		uid, gid, err := unprivileged()
		if err != nil {
			return err
		}
		s.cred.Credential = &syscall.Credential{Uid: uid, Gid: gid}
		for _, d := range []string{s.root, s.sock} {
			if err := os.Chown(d, int(uid), int(gid)); err != nil {
				return err
			}
		}
	}
	initdb := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"), "-D", s.data, "-U", "postgres", "-A", "trust",
		"-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
	initdb.SysProcAttr = s.cred
	initdb.Dir = s.root
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb in %s: %w: %s", s.data, err, out)
	}
	conf := "listen_addresses = ''\nport = " + port + "\nmax_connections = 300\nautovacuum_naptime = 5min\n"
	if o.NoFsync {
		conf += "fsync = off\nsynchronous_commit = off\nfull_page_writes = off\n"
	}
	for k, v := range o.Settings {
		conf += k + " = '" + v + "'\n"
	}
	f, err := os.OpenFile(filepath.Join(s.data, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(conf)
	return errors.Join(err, f.Close())
}

func (s *Server) start(ctx context.Context) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	owned := ""
	if s.owned {
		owned = s.root
	}
	cmd := exec.Command("/bin/sh", "-c", supervisor, "epigraph-pg-supervisor", filepath.Join(s.bin, "postgres"), s.data, s.sock, owned)
	cmd.Stdin = r
	cmd.Dir = "/"
	cmd.SysProcAttr = s.cred
	if err := errors.Join(cmd.Start(), r.Close()); err != nil {
		return errors.Join(err, w.Close())
	}
	s.supervisor, s.pipe = cmd, w
	if err := s.await(ctx); err != nil {
		log, _ := os.ReadFile(s.data + ".log")
		return errors.Join(fmt.Errorf("start PostgreSQL: %w: %s", err, log), s.halt("immediate"))
	}
	return nil
}

func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startWait, errors.New("server does not answer"))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, s.URL(""))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

func (s *Server) halt(word string) error {
	if s.supervisor == nil {
		return nil
	}
	_, err := s.pipe.WriteString(word + "\n")
	err = errors.Join(err, s.pipe.Close(), s.supervisor.Wait())
	s.supervisor, s.pipe = nil, nil
	return err
}

func (s *Server) remove() error {
	err := os.RemoveAll(s.sock)
	if s.owned {
		err = errors.Join(err, os.RemoveAll(s.root))
	}
	return err
}

// unprivileged picks whom the server runs as when we are root, which PostgreSQL refuses to be.
func unprivileged() (uid, gid uint32, err error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, lerr := user.Lookup(name)
		if lerr != nil {
			err = errors.Join(err, lerr)
			continue
		}
		id, uerr := strconv.ParseUint(u.Uid, 10, 32)
		group, gerr := strconv.ParseUint(u.Gid, 10, 32)
		if perr := errors.Join(uerr, gerr); perr != nil {
			return 0, 0, perr
		}
		return uint32(id), uint32(group), nil
	}
	return 0, 0, fmt.Errorf("find a user to run PostgreSQL as: %w", err)
}

var versionText = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// findBinaries returns the directory of the newest usable installation.
func findBinaries(ctx context.Context) (string, error) {
	var dirs []string
	if d := os.Getenv(BinEnv); d != "" {
		dirs = append(dirs, d)
	}
	debian, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", err
	}
	slices.SortFunc(debian, func(a, b string) int { return major(b) - major(a) })
	dirs = append(dirs, debian...)
	if p, err := exec.LookPath("postgres"); err == nil {
		dirs = append(dirs, filepath.Dir(p))
	}
	for _, d := range dirs {
		out, err := exec.CommandContext(ctx, filepath.Join(d, "postgres"), "--version").Output()
		if err != nil {
			continue
		}
		m := versionText.FindSubmatch(out)
		if m == nil {
			continue
		}
		if v, err := strconv.Atoi(string(m[1])); err == nil && v >= minMajor {
			return d, nil
		}
	}
	return "", ErrNoBinaries
}

func major(debianBin string) int {
	n, err := strconv.Atoi(filepath.Base(filepath.Dir(debianBin)))
	if err != nil {
		return 0
	}
	return n
}
