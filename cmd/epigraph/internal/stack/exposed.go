package stack

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
)

// warnExposed logs which files with secrets or data are readable by other users. Missing files hold nothing.
func warnExposed(ctx context.Context, log *slog.Logger, paths ...string) {
	for _, path := range paths {
		if path == "" {
			continue
		}
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			log.WarnContext(ctx, "cannot tell who may read a file with secrets", "file", path, "err", err)
		case exposed(info):
			log.WarnContext(ctx, "others can read a file with secrets or data: take their right to it, as by chmod go-rwx", "file", path, "mode", info.Mode().String())
		}
	}
}

// secretFiles are the files of this configuration that a service reads secrets from or keeps data in.
func (c Config) secretFiles(service string) []string {
	files := []string{c.file, c.GRPC.TLS.KeyFile}
	if service == Gateway {
		files = append(files, c.Gateway.TLS.KeyFile)
	}
	switch {
	case service == Executor && c.Executor.Store == "sqlite":
		files = append(files, c.Executor.SQLitePath)
	case service == Registry && c.Registry.Store == "sqlite":
		files = append(files, c.Registry.SQLitePath)
	}
	if service == Executor {
		files = append(files, folder(c.Executor.Blobs), folder(c.Executor.Archive))
		if c.Executor.Blobs == "" && c.Executor.Store == "sqlite" {
			files = append(files, c.Executor.SQLitePath+".blobs")
		}
	}
	return files
}

// folder is the folder of a store of values with a file URL; empty for other URLs.
func folder(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "file" {
		return ""
	}
	return filepath.FromSlash(u.Path)
}
