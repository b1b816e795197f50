package printer

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
)

// ProgressBar is a bar on a terminal; elsewhere a line every other second.
type ProgressBar struct {
	writer  progress.Writer // nil without a terminal
	tracker *progress.Tracker
	stopped chan struct{}

	mu    sync.Mutex
	plain io.Writer
	what  string
	total int
	last  time.Time
}

// plainEvery is the time between lines of progress without a terminal.
const plainEvery = 2 * time.Second

// NewProgress starts a ProgressBar.
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

// Set sets the progress. It is safe for concurrent use.
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

// Done ends the bar.
func (p *ProgressBar) Done() {
	if p.writer == nil {
		return
	}
	p.tracker.MarkAsDone()
	p.writer.Stop()
	<-p.stopped
	_, _ = fmt.Fprintln(p.plain)
}
