module kvgate.dev/tests/gobins/pause

go 1.25.0
