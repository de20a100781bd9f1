// Four replicas, not partitions: group ids are replica numbers. Also what JAX does not lower for TPU.
module @replicas attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 4 : i32} {
  func.func public @main(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
    %sum = "stablehlo.all_reduce"(%x) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %c = stablehlo.add %b, %a : tensor<f32>
        stablehlo.return %c : tensor<f32>
    }) {replica_groups = dense<[[0, 3], [2, 1]]> : tensor<2x2xi64>} : (tensor<8xf32>) -> tensor<8xf32>
    %root = "stablehlo.collective_broadcast"(%x) {
      replica_groups = dense<[[2, 0], [1, 3]]> : tensor<2x2xi64>
    } : (tensor<8xf32>) -> tensor<8xf32>
    return %sum, %root : tensor<8xf32>, tensor<8xf32>
  }
}
