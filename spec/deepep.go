package spec

import (
	"math/big"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"github.com/rdmatune/rdmatune/param"
)

// deepepBytes is the RDMA buffer that DeepEP's low-latency mode needs in bytes: a
// capacity, far above any single message. Formula of its V1 code
// (csrc/legacy/config.hpp, get_low_latency_rdma_size_hint): dispatch messages carry
// 16 bytes and the hidden state in BF16 or in FP8 with a scale per 128 values,
// combine messages BF16 and scales; send, receive and signal areas are double
// buffered and the sum is rounded strictly up to 128. The number of ranks does not
// enter, and is taken only to be checked against the experts.
//
// A fifth argument is the buffer that the program is going to be given: one that is
// too small is an error, before DeepEP asserts it at warm-up.
var deepepBytes = function.New(&function.Spec{
	Params: []function.Parameter{
		{Name: "tokens", Type: cty.Number}, {Name: "hidden", Type: cty.Number},
		{Name: "ranks", Type: cty.Number}, {Name: "experts", Type: cty.Number},
	},
	VarParam: &function.Parameter{Name: "buffer", Type: cty.Number},
	Type:     function.StaticReturnType(cty.Number),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		n, err := counts(args[:4], []string{"tokens", "hidden", "ranks", "experts"}, []int64{1, 128, 1, 1})
		if err != nil {
			return cty.NilVal, err
		}
		for i, v := range n {
			if !v.IsInt64() || v.Int64() > 1<<24 {
				return cty.NilVal, function.NewArgErrorf(i, "%s is out of range", v)
			}
		}
		tokens, hidden, ranks, experts := n[0].Int64(), n[1].Int64(), n[2].Int64(), n[3].Int64()
		if experts%ranks != 0 {
			return cty.NilVal, function.NewArgErrorf(3, "%d experts do not divide over %d ranks", experts, ranks)
		}
		need := deepepNeeds(tokens, hidden, experts)
		if need.Cmp(big.NewInt(deepepLimit)) >= 0 {
			return cty.NilVal, function.NewArgErrorf(0, "%d tokens a rank and %d experts need %s bytes; DeepEP counts its buffer in 16-byte units of 31 bits and takes less than 32 GiB. Use fewer tokens a rank, or spread the experts over more ranks without redundant ones", tokens, experts, need)
		}
		if len(args) > 5 {
			return cty.NilVal, function.NewArgErrorf(5, "one buffer at most")
		}
		if len(args) == 5 {
			given, err := counts(args[4:], []string{"buffer"}, []int64{0})
			if err != nil {
				return cty.NilVal, function.NewArgErrorf(4, "the buffer must be a whole number of bytes")
			}
			if given[0].Cmp(need) < 0 {
				return cty.NilVal, function.NewArgErrorf(4, "a buffer of %s bytes is too small: %d tokens a rank, hidden %d and %d experts need %s (%s)",
					given[0], tokens, hidden, experts, need, param.FormatBytes(need.Int64()))
			}
		}
		return bigInt(need), nil
	},
})

// deepepLimit is what DeepEP's buffers stay below: 2^31 - 1 units of 16 bytes.
const deepepLimit = (1<<31 - 1) * 16

// deepepNeeds is the formula for so many tokens a rank, values of a hidden state, and
// experts.
func deepepNeeds(tokens, hidden, experts int64) *big.Int {
	scales := hidden / 128
	dispatch := 16 + max(2*hidden, hidden+4*scales)
	combine := 2*hidden + 4*scales
	product := func(x ...int64) *big.Int {
		p := big.NewInt(1)
		for _, f := range x {
			p.Mul(p, big.NewInt(f))
		}
		return p
	}
	send := product(tokens, dispatch)
	if c := product(experts, tokens, combine); c.Cmp(send) > 0 {
		send = c
	}
	sum := send.Add(send, product(experts, tokens, max(dispatch, combine)))
	sum.Add(sum, product((4*experts+127)/128*128))
	sum.Mul(sum, big.NewInt(2))
	return sum.Add(sum, big.NewInt(128)).Quo(sum, big.NewInt(128)).Mul(sum, big.NewInt(128))
}
