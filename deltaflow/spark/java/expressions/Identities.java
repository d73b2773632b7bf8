package io.deltaflow.spark.expressions;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.expressions.BitwiseAnd;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.EvalMode$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.MonotonicallyIncreasingID;
import org.apache.spark.sql.catalyst.expressions.SparkPartitionID;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.ObjectType;
import scala.Option;
import scala.collection.immutable.Seq;

/** The numbers of identity columns, made by expressions of Spark and methods of Java's and Spark's own classes. */
public final class Identities {
  /** The bits of monotonically_increasing_id() that count the rows of a partition. */
  private static final long ROW = (1L << 33) - 1;

  private Identities() {}

  /**
   * first + step * (partition + partitions * row), where row counts the rows for which this very expression is
   * evaluated. No two rows of a stage get one number, and there are no gaps between partitions of one size. A number
   * that a long cannot hold is an ArithmeticException.
   */
  public static Expression numbers(long first, long step) {
    Expression row = new BitwiseAnd(new MonotonicallyIncreasingID(), literal(ROW));
    Expression place = exact("addExact", asLong(new SparkPartitionID()), exact("multiplyExact", partitions(), row));
    return exact("addExact", changing(first), exact("multiplyExact", literal(step), place));
  }

  /** A number that generated code does not hold: every write has another, and Spark would compile each one's code. */
  private static Expression changing(long value) {
    Expression object = Literal.fromObject(Long.valueOf(value), new ObjectType(Long.class));
    return new Invoke(object, "longValue", DataTypes.LongType, Plans.seq(new ArrayList()), Plans.seq(new ArrayList()),
        true, true, false);
  }

  /** How many partitions the stage has: TaskContext.get().numPartitions(); 1 where no task runs. */
  private static Expression partitions() {
    DataType type = new ObjectType(TaskContext.class);
    Expression context = new StaticInvoke(TaskContext.class, type, "get", Plans.seq(new ArrayList()),
        Plans.seq(new ArrayList()), true, true, false, Option.empty());
    Expression number = new Invoke(context, "numPartitions", DataTypes.IntegerType, Plans.seq(new ArrayList()),
        Plans.seq(new ArrayList()), true, true, false);
    List known = Arrays.asList(new Object[] {asLong(number), literal(1L)});
    return new Coalesce(Plans.seq(known));
  }

  private static Expression exact(String method, Expression left, Expression right) {
    Seq arguments = Plans.seq(Arrays.asList(new Object[] {left, right}));
    return new StaticInvoke(Math.class, DataTypes.LongType, method, arguments, Plans.seq(new ArrayList()), true, false,
        true, Option.empty());
  }

  private static Expression asLong(Expression value) {
    return new Cast(value, DataTypes.LongType, Option.empty(), EvalMode$.MODULE$.ANSI());
  }

  private static Literal literal(long value) { return Literal.create(Long.valueOf(value), DataTypes.LongType); }
}
