//go:build !unix

package mcp

import "os/exec"

// own changes nothing: only Unix has groups of processes.
func own(*exec.Cmd) {}

// terminate and kill end the process itself. One that is gone is no error.
func terminate(cmd *exec.Cmd) { kill(cmd) }

func kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
