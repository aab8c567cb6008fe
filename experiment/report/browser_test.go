package report

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// TestInABrowser opens the page in headless Chromium, as a phone, a desktop and on
// paper, in light and dark: it renders without an error and asks the network for
// nothing, every series is drawn where it can be seen, and nothing is wider than the
// screen. It needs Chromium (Debian's package chromium) and RDMATUNE_BROWSER=1.
func TestInABrowser(t *testing.T) {
	if os.Getenv("RDMATUNE_BROWSER") == "" {
		t.Skip("RDMATUNE_BROWSER is not set: test/all.sh sets it, and installs the browser")
	}
	file := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(file, []byte(render(t, full("20260102-030405-aaaa"), full("20260102-030405-bbbb"))), 0o644); err != nil {
		t.Fatal(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU) // root has no sandbox
	alloc, stop := chromedp.NewExecAllocator(t.Context(), options...)
	defer stop()
	browser, stop := chromedp.NewContext(alloc)
	defer stop()
	if err := chromedp.Do(browser, chromedp.Navigate("about:blank")); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(browser, 3*time.Minute)
	defer stop()

	var mu sync.Mutex
	var complaints []string
	err := chromedp.Listen(ctx, func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			complaints = append(complaints, e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			complaints = append(complaints, "console: "+string(e.Type))
		case *log.EventEntryAdded:
			complaints = append(complaints, e.Entry.Text)
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(e.Request.URL, "file:") {
				complaints = append(complaints, "asked for "+e.Request.URL)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	// What a reader would see: the screen's overflow, drawings without extent or colour,
	// and the names of the series that are drawn.
	const look = `(() => {
		const drawn = [...document.querySelectorAll('[data-series]')];
		const bad = drawn.filter(e => {
			const box = e.getBoundingClientRect(), style = getComputedStyle(e);
			const paint = e.tagName === 'rect' ? style.fill : style.stroke;
			return box.width + box.height === 0 || paint === 'none' || paint === 'rgba(0, 0, 0, 0)';
		}).map(e => e.dataset.series);
		const text = getComputedStyle(document.body);
		return {
			overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
			charts: document.querySelectorAll('figure.chart').length,
			series: [...new Set(drawn.map(e => e.dataset.series))].sort(),
			bad: bad, ink: text.color, paper: text.backgroundColor,
		};
	})()`
	type seen struct {
		Overflow   float64
		Charts     int
		Series     []string
		Bad        []string
		Ink, Paper string
	}
	papers := map[string]string{}
	for _, v := range []struct {
		name   string
		width  int64
		scheme string
		media  string
	}{
		{"phone, light", 360, "light", "screen"}, {"phone, dark", 360, "dark", "screen"},
		{"desktop, light", 1400, "light", "screen"}, {"paper", 800, "light", "print"},
	} {
		media := emulation.SetEmulatedMediaParams{
			Media: v.media, Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: v.scheme}},
		}
		if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, media); err != nil {
			t.Fatal(err)
		}
		err := chromedp.Do(ctx,
			chromedp.EmulateViewport(v.width, 800),
			chromedp.Navigate((&url.URL{Scheme: "file", Path: file}).String()),
			chromedp.WaitVisible("figure.chart path.line"),
		)
		if err != nil {
			t.Fatalf("%s: %v", v.name, err)
		}
		got, err := chromedp.Run(ctx, chromedp.Evaluate[seen](look))
		if err != nil {
			t.Fatalf("%s: %v", v.name, err)
		}
		if got.Overflow > 0 || len(got.Bad) > 0 || got.Charts != 18 {
			t.Errorf("%s: %v pixels too wide, %d charts, not to be seen: %v", v.name, got.Overflow, got.Charts, got.Bad)
		}
		want := "hint 0|hint 0 P50|hint 0 P99|hint 8 KiB|hint 8 KiB P50|hint 8 KiB P99|P50 of a stretch|longest of a stretch"
		if series := strings.Join(got.Series, "|"); !same(series, want) {
			t.Errorf("%s: series %s", v.name, series)
		}
		if got.Ink == got.Paper {
			t.Errorf("%s: ink %s on paper %s", v.name, got.Ink, got.Paper)
		}
		papers[v.scheme] = got.Paper
	}
	if papers["light"] == papers["dark"] {
		t.Errorf("light and dark have the same paper: %v", papers)
	}
	if pdf, err := chromedp.Run(ctx, chromedp.PrintToPDF()); err != nil || len(pdf) < 10_000 {
		t.Errorf("printed %d bytes, %v", len(pdf), err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(complaints) > 0 {
		t.Errorf("the browser complains: %s", fmt.Sprint(complaints))
	}
}

// same compares two lists of names without order.
func same(a, b string) bool {
	count := map[string]int{}
	for _, x := range strings.Split(a, "|") {
		count[x]++
	}
	for _, x := range strings.Split(b, "|") {
		count[x]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}
