module github.com/epigraph-run/epigraph/proto

go 1.26.0
