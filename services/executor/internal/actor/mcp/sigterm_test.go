//go:build unix

package mcp_test

import (
	"os/signal"
	"syscall"
)

func ignoreSIGTERM() { signal.Ignore(syscall.SIGTERM) }
