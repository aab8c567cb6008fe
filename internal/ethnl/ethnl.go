package ethnl

type Coalesce struct{}
