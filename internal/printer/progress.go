package printer

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
)

// ProgressBar is a bar on a terminal, and a line every other second elsewhere.
type ProgressBar struct {
	writer  progress.Writer // nil where there is no terminal
	tracker *progress.Tracker
	stopped chan struct{}

	mu    sync.Mutex
	plain io.Writer
	what  string
	total int
	last  time.Time
}

// plainEvery is how often progress is told where there is no terminal.
const plainEvery = 2 * time.Second

// NewProgress begins one, on a terminal or not.
func NewProgress(w io.Writer, what string, total int) *ProgressBar {
	p := &ProgressBar{plain: w, what: what, total: total, last: time.Now(), stopped: make(chan struct{})}
	if !isTerminal(w) {
		return p
	}
	p.writer = progress.NewWriter()
	p.writer.SetOutputWriter(w)
	p.writer.SetAutoStop(false)
	p.writer.SetTrackerPosition(progress.PositionRight)
	p.writer.SetStyle(progress.StyleBlocks)
	p.writer.SetUpdateFrequency(100 * time.Millisecond)
	p.tracker = &progress.Tracker{Message: what, Total: int64(total)}
	p.writer.AppendTracker(p.tracker)
	go func() {
		defer close(p.stopped)
		p.writer.Render()
	}()
	return p
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

// Set reports how far it is. Any goroutine may call it.
func (p *ProgressBar) Set(done int) {
	if p.writer != nil {
		p.tracker.SetValue(int64(done))
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.last) >= plainEvery {
		p.last = time.Now()
		Printf(p.plain, "%s: %s of %s\n", p.what, Number(done), Number(p.total))
	}
}

// Done ends it.
func (p *ProgressBar) Done() {
	if p.writer == nil {
		return
	}
	p.tracker.MarkAsDone()
	p.writer.Stop()
	<-p.stopped
	_, _ = fmt.Fprintln(p.plain)
}
