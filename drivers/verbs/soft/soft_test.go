package soft_test

import (
	"testing"

	"github.com/rdmatune/rdmatune/drivers/verbs/soft"
	"github.com/rdmatune/rdmatune/drivers/verbs/verbstest"
)

func TestSemantics(t *testing.T) { verbstest.Run(t, soft.Provider{}, "soft0") }

func TestSemanticsShuffled(t *testing.T) { verbstest.Run(t, soft.Provider{Shuffle: true}, "soft0") }
